"""The shapes of numbers, codes, links and words. Every repeat is bounded or unambiguous: matching takes linear time."""

from __future__ import annotations

import re

UP = "".join(c for c in map(chr, range(0x250)) if c.isupper())
_W = r"\w"
PARTICLE = "(?:van der|van den|de la|van|von|del?|der|den|d[aiou]|das|dos|la|le|bin|ibn|al|el|ter|ten|zu) "


def _after_capital(w: str) -> str:
    """An initial's full stop, the rest of a title such as Mr. with its own, or the rest of a word."""
    part = rf"['\u2019-][{w}]+"
    # ``(?:x|)`` and not ``x?``, ``x(?:x)*`` and not ``(?:x)+``: where there is none, no repeat is set up.
    return rf"(?:\.|(?:rs?|[sx]|o[lnv]|rof|e[nvp]|gt|apt|aj|pl)\.(?= )|[{w}]*+(?:{part}(?:{part})*|))"


def _scan(up: str, w: str, d: str) -> re.Pattern[str]:
    """One set of first characters, so that the search skips to them: what follows depends on which it was.

    A run of words, a word by itself, a word before a digit, a plain number; or only where another number or a slot
    may begin. Sets are cheaper to ask where they hold no class such as ``\\w``.
    """
    rest = _after_capital(w)
    follows = rf" (?:{PARTICLE}|)[{up}]{rest}"
    return re.compile(
        rf"[{up}{d}+(\[<{{]"
        rf"(?:(?<=[{up}])(?<![{w}].){rest}"
        rf"(?:{follows}(?:{follows}){{0,14}}(?P<run>)|(?!(?s:.)[0-9])(?P<word>)|(?P<counted>))"
        rf"|(?<=[{d}])(?:(?<![{w}.,+(-].)[{d}]{{0,8}}+(?![{w}]|[ .,:/()-]{{1,2}}[{d}(]| ?(?:x|ext))(?P<plain>)|)"
        rf"|(?<=[+(])[{d}]|(?<=[\[<{{]))",
    )


WORD = rf"[{UP}]{_after_capital(_W)}"
SCAN = _scan(UP, _W, r"\d")
SCAN_ASCII = _scan("A-Z", "A-Za-z0-9_", "0-9")
"""Finds the same in a text of ASCII only, faster."""
SMALL_PAIR = re.compile(r"([a-z](?<![\w@#.'\u2019-].)[a-z]{2,14}+)(?= ([a-z]{3,20}+)(?![\w'\u2019-]))")
LINK = re.compile(r"@|://|www\.")
LOCAL = re.compile(r"[\w.!#$%&'*+/=?^`{|}~-]{1,64}\Z")
"""Searched in the 64 characters before an ``@``."""
DOMAIN = re.compile(r"(?:localhost\b|(?:[^\W_](?:[\w-]{0,61}[^\W_])?\.){1,8}[^\W\d_](?:[\w-]{0,61}[^\W_]))")
SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,15}\Z")
URL_REST = re.compile(r"[^\s<>\"'`\]})]{1,2000}")
SLOT = re.compile(r"[\[<{]{1,2} ?([A-Za-z](?:[A-Za-z]|[_ -](?=[A-Za-z])){1,38})[_ -]?\d{0,4} ?[\]>}]{1,2}")
NUMBER = re.compile(
    r"""(?P<OTHER>\d{1,3}(?:\.\d{1,3}){3}(?![\w]|\.\d)
      |(?:\d{4}([-/.])\d{1,2}\2\d{1,2}|\d{1,2}([-/.])\d{1,2}\3(?:\d{4}|\d\d))(?![-/.]?\w)
      |\d{1,2}:\d\d(?::\d\d)?(?![\w:]))
    |(?P<IDENTIFIER>\d{3}-\d\d-\d{4}(?![\w-]))
    |(?P<card>\d(?:[ -]?\d){12,18}(?![\w-]))
    |(?P<phone>(?:\+\d{1,3}[ .-]?|00\d{1,3}[ .-])?(?:\(\+?\d{1,5}\)[ .-]?)?\d{1,11}(?:(?:[ .-]|\ ?/\ ?)\d{2,8}){0,5}
      (?:\ ?(?:x|ext\.?)\ ?\d{1,6})?(?![\w-]))
    |(?P<number>\d{1,3}(?:,\d{3})+(?:\.\d+)?(?!\w)|\d+(?:[.,]\d+)?)""",
    re.X,
)
PLAIN = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?(?!\w)|\d+(?:[.,]\d+)?")
ROLE_NUMBER = re.compile(r" #?\d{1,3}\b(?![.,]\d)")
CODE = re.compile(r"\w{1,256}(?:[-_/]\w{1,64}){0,12}")
CODE_HEAD = re.compile(r"[\w-]{1,64}\Z")
UNIT = re.compile(r"(\d+)[^\W\d_]{1,4}\Z")
IBAN = re.compile(r"[A-Z]{2}\d\d(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?(?!\w)")
WORDS = re.compile(r"\b(?!is\b)[^\W\d_]+")
WORDS_ASCII = re.compile(r"[a-z](?<![a-z0-9_].)(?!(?<=i)s\b)[a-z]*+")
"""Finds the same in a casefolded text of ASCII only, faster."""
DIGITS = frozenset("0123456789")
CURRENCY = frozenset("$€£¥")
HOUSE_BEFORE = re.compile(r"(?<![\w.])\d{1,6}[A-Za-z]?,? \Z")
HOUSE_AFTER = re.compile(r",? \d{1,4}[A-Za-z]?\b")
FLAT_AFTER = re.compile(r"\.?,? (?:Apt|Apartment|Suite|Unit|Ste|Flat)\b\.? ?\w{1,6}")
STATE_ZIP = re.compile(r" \d{5}(?:-\d{4})?(?![\w-])")
BOX_AFTER = re.compile(r" \d{1,6}\b")
DAY_AFTER = re.compile(r"\.?(?: \d{1,2}(?:st|nd|rd|th)?\b)?(?:(?: ?,)? \d{4}\b)?")
DAY_BEFORE = re.compile(r"(?<![\w.])\d{1,2}(?:st|nd|rd|th)? (?:of )?\Z")
ORG_AFTER = re.compile(rf" (?:of|for) (?:the )?{WORD}(?: (?:(?:and|of) )?{WORD}){{0,4}}")


_DOUBLED = (0, 2, 4, 6, 8, 1, 3, 5, 7, 9)  # the digits of 2n, added


def luhn(digits: str) -> bool:
    """Whether the check digit of a card number (ISO/IEC 7812-1, annex B) is right."""
    odd, even = digits[-1::-2], digits[-2::-2]
    return (sum(map(int, odd)) + sum(map(_DOUBLED.__getitem__, map(int, even)))) % 10 == 0


def is_phone(found: str, digits: str, named: bool) -> bool:
    """Whether a number can be dialled: 7 to 15 digits (E.164), and grouped, prefixed or named (``Fax:``) like one."""
    if not 7 <= len(digits) <= 15 + 6 * ("x" in found):
        return False
    if found[0] == "+" or found.startswith("00") or named:
        return True
    groups = [len(group) for group in re.findall(r"\d+", found)]
    if len(groups) == 1:
        return len(digits) in (10, 11) and digits[0] in "01"
    if len(digits) == 7:
        return groups == [3, 4] and "-" in found
    return len(digits) >= 9 and set(groups) != {4}
