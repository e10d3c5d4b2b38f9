"""How good the named-entity classifier is on labelled text: precision and recall, type by type, source by source.

Overlap counts: a span that was found is right where it shares a character with a labelled one of its type, and a
labelled one is found where a span of its type shares a character with it. Both shares have exact (Clopper–Pearson)
95 % bounds, as if spans were independent. Where a source labels nothing of a type, nothing can be said of that type
there, and the pooled figures leave that source out.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from ragtrace.corpora._files import json_lines
from ragtrace.errors import InputError, UsageError
from ragtrace.ner import TYPES, entities
from ragtrace.report.markdown import said
from ragtrace.stats import clopper_pearson

LABELS: dict[str, str | None] = dict.fromkeys(("EMAIL", "EMAIL_ADDRESS"), "EMAIL_REAL")
LABELS |= dict.fromkeys(("PERSON", "PER", "NAME", "PERSON_NAME", "FULL_NAME"), "PERSON_NAME")
LABELS |= dict.fromkeys(
    ("ORG", "ORGANIZATION", "ORGANISATION", "CORPORATION", "COMPANY", "COMPANY_NAME", "JOB_TITLE"), "ORG_TITLE"
)
LABELS |= dict.fromkeys(("PHONE", "PHONE_NUMBER", "TELEPHONE"), "PHONE")
LABELS |= dict.fromkeys(
    ("ID", "ID_NUM", "SSN", "US_SSN", "CREDIT_CARD", "CREDIT_CARD_NUMBER", "IBAN", "IBAN_CODE", "ACCOUNT_NUMBER",
     "US_BANK_NUMBER", "US_PASSPORT", "PASSPORT", "US_DRIVER_LICENSE", "DRIVER_LICENSE", "US_ITIN", "UK_NHS"),
    "IDENTIFIER",
)  # fmt: skip
LABELS |= dict.fromkeys(("ADDRESS", "STREET_ADDRESS", "ZIP_CODE", "ZIPCODE", "POSTCODE"), "ADDRESS")
LABELS |= dict.fromkeys(("NUMBER", "CARDINAL", "MONEY", "QUANTITY", "PERCENT"), "NUMBER")
LABELS |= dict.fromkeys(("URL", "DOMAIN", "DOMAIN_NAME", "IP_ADDRESS", "DATE", "TIME", "DATE_TIME"), "OTHER")
LABELS |= dict.fromkeys(
    ("LOC", "LOCATION", "GPE", "FAC", "CITY", "COUNTRY", "STATE", "NRP", "NORP", "AGE", "MISC", "GROUP", "PRODUCT",
     "WORK", "WORK_OF_ART", "CREATIVE-WORK", "EVENT", "TITLE", "PREFIX"),
    None,
)  # fmt: skip
"""What common labels are called here; ``None``: no type of ours. A place by itself is none: it is no ADDRESS."""
NOTHING = "NONE"
"""What stands for ``None`` in a mapping of the user's."""
MEASURES: dict[str, frozenset[str]] = {kind: frozenset((kind,)) for kind in TYPES} | {
    "EMAIL, loose": frozenset(("EMAIL_REAL", "EMAIL_PLACEHOLDER")),
    "PERSON_NAME, loose": frozenset(("PERSON_NAME", "PERSON_NAME_AMBIGUOUS")),
}
"""What is measured: each type strictly, and types that labels do not tell apart taken together."""
POOLED = "all"
NO_LABELS = "no labels"
COLUMNS = ("source", "type", "precision", "right/predicted", "recall", "found/gold")
Span = tuple[int, int]


class Share(NamedTuple):
    """``hits`` of ``n``, with its bounds; no value where there is nothing to count."""

    hits: int
    n: int
    value: float | None
    low: float | None
    high: float | None


class Cell(NamedTuple):
    """One type in one source; both shares are ``None`` where the source labels nothing of the type."""

    source: str
    type: str
    precision: Share | None
    recall: Share | None


class Row(NamedTuple):
    """A labelled text, with its spans by our type."""

    text: str
    source: str
    gold: list[tuple[int, int, str]]


def mapping(told: Iterable[str] = ()) -> dict[str, str | None]:
    """:data:`LABELS` with what was told as ``OURS=THEIRS``; ``NONE=THEIRS`` leaves a label out.

    :raises UsageError: another form, or a type that there is not.
    """
    labels = dict(LABELS)
    for pair in told:
        ours, equals, theirs = pair.partition("=")
        if not equals or not theirs or ours not in (*TYPES, NOTHING):
            raise UsageError(
                f"label {pair!r}, expected OURS=THEIRS, for example PERSON_NAME=NAME_STUDENT; OURS is one of "
                f"{', '.join(TYPES)}, or {NOTHING} for a label to leave out"
            )
        labels[theirs.upper()] = None if ours == NOTHING else ours
    return labels


def read(path: Path, labels: Mapping[str, str | None] = LABELS) -> Iterator[Row]:
    """The rows of a JSONL file of ``{"text", "spans": [{"start", "end", "label", "text"?}], "source"?}``.

    :raises InputError: the file cannot be read, or a row is something else; the message says which line and why.
    """
    for at, row in json_lines(path):
        where = f"{str(path)!r} line {at}"
        text, source, spans = row.get("text"), row.get("source", "unnamed"), row.get("spans")
        if not isinstance(text, str) or not isinstance(source, str) or not isinstance(spans, list):
            raise InputError(
                f'{where} has {", ".join(row) or "nothing"}; expected "text" and, where it is there, "source" as text, '
                'and "spans" as a list'
            )
        gold = [(_kind(span, labels, where), *_place(span, text, where)) for span in spans]
        yield Row(text, source, [(start, end, kind) for kind, start, end in gold if kind])


def _kind(span: Any, labels: Mapping[str, str | None], where: str) -> str | None:
    label = span.get("label") if isinstance(span, dict) else None
    if not isinstance(label, str):
        raise InputError(
            f'{where} has the span {span!r:.80}; expected {{"start", "end", "label"}} with a text as label'
        )
    if label.upper() not in labels:
        raise InputError(
            f"{where} has the label {label!r:.80}, which is not known; say what it is with --label OURS={label[:80]}, "
            f"or leave it out with --label {NOTHING}={label[:80]}"
        )
    return labels[label.upper()]


def _place(span: dict[str, Any], text: str, where: str) -> Span:
    start, end = span.get("start"), span.get("end")
    if type(start) is not int or type(end) is not int or not 0 <= start < end <= len(text):
        raise InputError(
            f"{where} has a span from {start!r:.20} to {end!r:.20}, expected whole numbers with 0 <= start < end <= "
            f"{len(text)}, the length of the text in characters (not in bytes)"
        )
    if "text" in span and span["text"] != text[start:end]:
        raise InputError(
            f"{where} has a span said to be {span['text']!r:.80}, but its text from {start} to {end} is "
            f"{text[start:end]!r:.80}; count offsets in characters (code points)"
        )
    return start, end


def overlapping(spans: Iterable[Span], others: Iterable[Span]) -> int:
    """How many of ``spans`` share a character with one of ``others``."""
    ordered = sorted(others)
    starts = [start for start, _ in ordered]
    reach = [0, *accumulate((end for _, end in ordered), max)]  # how far the first n of them go
    return sum(reach[bisect_left(starts, end)] > start for start, end in spans)


def audit(rows: Iterable[Row]) -> list[Cell]:
    """Every measure in every source, in the order of the rows, and then pooled."""
    counts: dict[str, dict[str, list[int]]] = {}
    for row in rows:
        of_source = counts.setdefault(row.source, {measure: [0, 0, 0, 0] for measure in MEASURES})
        found = entities(row.text)
        for measure, types in MEASURES.items():
            predicted = [(e.start, e.end) for e in found if e.type in types]
            gold = [(start, end) for start, end, kind in row.gold if kind in types]
            new = overlapping(predicted, gold), len(predicted), overlapping(gold, predicted), len(gold)
            of_source[measure] = [a + b for a, b in zip(of_source[measure], new, strict=True)]
    cells = [_cell(source, m, of_source[m]) for source, of_source in counts.items() for m in MEASURES]
    if len(counts) > 1:
        for m in MEASURES:
            labelled = [of_source[m] for of_source in counts.values() if of_source[m][3]] or [[0, 0, 0, 0]]
            cells.append(_cell(POOLED, m, [sum(numbers) for numbers in zip(*labelled, strict=True)]))
    return cells


def _cell(source: str, measure: str, numbers: Sequence[int]) -> Cell:
    right, predicted, found, gold = numbers
    if not gold:
        return Cell(source, measure, None, None)
    return Cell(source, measure, _share(right, predicted), _share(found, gold))


def _share(hits: int, n: int) -> Share:
    if not n:
        return Share(0, 0, None, None, None)
    low, high, _ = clopper_pearson(hits, n)
    return Share(hits, n, hits / n, low, high)


def lines(cells: Iterable[Cell]) -> list[tuple[str, ...]]:
    """The cells as text, under :data:`COLUMNS`."""
    return [(cell.source, cell.type, *_said(cell.precision), *_said(cell.recall)) for cell in cells]


def _said(share: Share | None) -> tuple[str, str]:
    if share is None:
        return NO_LABELS, ""
    if share.value is None:
        return "none predicted", "0/0"
    return f"{share.value:.3f} [{share.low:.3f}, {share.high:.3f}]", f"{share.hits}/{share.n}"


def markdown(cells: Iterable[Cell]) -> str:
    """The cells as a Markdown table."""
    rows = [(said(source), *rest) for source, *rest in lines(cells)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (COLUMNS, ["---"] * len(COLUMNS), *rows))


def as_rows(cells: Iterable[Cell]) -> list[dict[str, Any]]:
    """The cells for JSON; a share that there is none of is null."""
    return [
        {
            "source": cell.source,
            "type": cell.type,
            "precision": cell.precision and cell.precision._asdict(),
            "recall": cell.recall and cell.recall._asdict(),
        }
        for cell in cells
    ]
