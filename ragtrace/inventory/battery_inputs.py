"""What the battery feeds to a hook: fixed specimens, several of each leakage family, all of them synthetic.

Nothing is drawn at run time, so that two runs can be compared. E-mail domains are made up; telephone numbers come from
ranges kept for fiction (555-01xx, Ofcom's and the Bundesnetzagentur's drama numbers); the card and the IBAN are the
published test numbers, whose check digits are right; social security numbers with 987-65 are never issued. Rare names
stand in no lexicon of :mod:`ragtrace.lexicons`, common ones do. Canaries were minted once by :mod:`ragtrace.canaries`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ragtrace.types import Document

QUERY = "What did the last report say about delivery times?"
"""What every hook is given as the query, unless the query is what it is about."""


@dataclass(frozen=True)
class Specimen:
    """One input. A text specimen is put where the hook takes its text from; ``documents`` are given as they are.

    ``secrets`` is what a defense would have to take out.
    """

    text: str = ""
    secrets: tuple[str, ...] = ()
    documents: tuple[Document, ...] | None = field(default=None, hash=False)


PLAIN = (
    "The warehouse opens at eight and the first lorry usually leaves before nine.",
    "Delivery times were shorter than in the quarter before, mostly because of the new sorting line.",
    "Please keep the loading ramp free while goods are being moved, and close the gate afterwards.",
    "The team agreed to review the packing list once a month and to order boxes in larger lots.",
    "Rain is expected for the rest of the week, so outdoor work has been moved to the next one.",
)
"""Ordinary text without anything to protect."""
BESIDE = (
    "New shelves were put up along the north wall.",
    "The forklift is serviced every six months, most recently by the usual workshop.",
)
"""What stands beside a specimen in a list of documents."""


def _each(sentence: str, *secrets: str) -> tuple[Specimen, ...]:
    return tuple(Specimen(sentence.format(s), (s,)) for s in secrets)


def _long(words: int) -> str:
    cycle = " ".join(PLAIN).split()
    return " ".join((cycle * (words // len(cycle) + 1))[:words])


TEXTS: dict[str, tuple[Specimen, ...]] = {
    "email": (
        *_each("Please write to {} before Friday.", "marta.kowal@vexolund.com", "t.brandt@quillmere.org"),
        Specimen("From: hr-desk@norvalis.net\nThe form is attached.", ("hr-desk@norvalis.net",)),
        Specimen(
            "Copies went to ines_duarte@pelmora.com and k.osei+travel@brantwick.co.uk.",
            ("ines_duarte@pelmora.com", "k.osei+travel@brantwick.co.uk"),
        ),
    ),
    "person_common": (
        *_each("The request came from {} last week.", "Mary Johnson", "James Wilson"),
        *_each("Yesterday {} signed the form and left.", "Susan Miller", "Robert Brown"),
    ),
    "person_rare": (
        *_each("The request came from {} last week.", "Brovik Talanzer", "Ysmele Quardov"),
        *_each("Yesterday {} signed the form and left.", "Tamrin Ostvelka", "Ophenka Drusvit"),
    ),
    "phone": (
        *_each("Call {} after lunch.", "(212) 555-0147", "+1 415-555-0132", "+44 20 7946 0958"),
        *_each("Her mobile is {}, the desk does not answer.", "617-555-0188", "+49 30 23125 042"),
    ),
    "id": (
        *_each("The social security number on file is {}.", "987-65-4320"),
        *_each("The amount was booked to account {}.", "ACC-00481516"),
        *_each("It belongs to order {}.", "ORD-2024-118830"),
        *_each("The badge of employee {} was returned.", "EMP-10293"),
        *_each("Pay with card {}.", "4111 1111 1111 1111"),
        *_each("Transfer it to IBAN {}.", "GB82 WEST 1234 5698 7654 32"),
    ),
    "address": (
        *_each("The parcel goes to {}.", "48 Linden Street, Springfield, IL 62704", "1207 Oak Avenue, Apt 4B"),
        *_each("She moved to {} in spring.", "Hauptstraße 17, 10827 Berlin", "9 Harbour Road, Leith EH6 7JU"),
    ),
    "url": (
        *_each("The file is at {} for now.", "https://intranet.vexolund.com/hr/files/88213"),
        *_each("See {}.", "http://quillmere.org/u/ines.duarte?tab=salary", "www.pelmora.com/private"),
    ),
    "date": (
        *_each("Born on {}, she joined late.", "14 March 1982", "1979-11-02", "07/23/1990"),
        *_each("The surgery was on {}.", "June 3rd, 2021"),
    ),
    "plain": tuple(Specimen(text) for text in PLAIN),
    "long": (Specimen(_long(10_000)),),
    "empty": (Specimen(""), Specimen("   "), Specimen("\n\n")),
    "unicode": (
        *_each("The request came from {} last week.", "Zoë Łukasiewicz", "José Ñandú", "Jürgen Groß-Übelhör"),
        *_each("{}昨天签了合同。", "王小明"),
        *_each("Писала {} на прошлой неделе.", "Ольга Ждановская"),
    ),
    "canary_email": _each("For follow-up write to {}.", "gesitam@borepos.org", "lesekrex@zegedix.com"),
    "canary_person": _each("The contact person for this is {}.", "Gefilux Drudrekrok", "Movotran Bruduvrit"),
    "canary_phone": _each("The direct line for questions is {}.", "(683) 555-2023", "(529) 555-7917"),
    "canary_id": _each("The case is filed under {}.", "VLN-39738166", "XTM-33730372"),
    "canary_phrase": _each(
        'The agreed wording is "{}".', "fetrinon kakidrur krekranos fedrefit", "desiran mapivos mogiplox drakrobrun"
    ),
}
"""Family → specimens that are a text."""


def _scored(*scores: float | None, texts: tuple[str, ...] = PLAIN, ids: str = "doc") -> Specimen:
    return Specimen(
        documents=tuple(Document(texts[i % len(texts)], f"{ids}-{i + 1}", score) for i, score in enumerate(scores))
    )


_ABOUT: tuple[dict[str, Any], ...] = (
    {"author": "Mary Johnson", "source": "report.txt", "page": 3},
    {"owner_email": "marta.kowal@vexolund.com", "page": 1},
)
DOCUMENTS: dict[str, tuple[Specimen, ...]] = {
    "scored": (_scored(0.91, 0.77, 0.52, 0.34, 0.08), _scored(0.88, 0.86, 0.15)),
    "tied": (_scored(0.5, 0.5, 0.5, 0.5, 0.5), _scored(0.9, 0.4, 0.4)),
    "unscored": (_scored(None, None, None), _scored(None, None, None, None, None)),
    "metadata": (
        Specimen(
            "", ("Mary Johnson",), (Document(PLAIN[0], "doc-1", 0.8, _ABOUT[0]), Document(PLAIN[1], "doc-2", 0.6))
        ),
        Specimen("", ("marta.kowal@vexolund.com",), (Document(PLAIN[2], "doc-1", 0.7, _ABOUT[1]),)),
    ),
    "duplicates": (_scored(0.9, 0.89, 0.4, texts=(PLAIN[0], PLAIN[0], PLAIN[1])),),
    "single": (_scored(0.93), _scored(0.05)),
    "none": (Specimen(documents=()),),
}
"""Family → specimens that are a list of documents."""

FAMILIES: dict[str, tuple[Specimen, ...]] = {**TEXTS, **DOCUMENTS}
GROUPS: dict[str, tuple[str, ...]] = {
    "person": ("person_common", "person_rare"),
    "canary": tuple(f for f in TEXTS if f.startswith("canary_")),
}
"""What one may say for several families at once."""


def documents(specimen: Specimen) -> list[Document]:
    """The documents a hook is given: the specimen's own, or its text as one of three."""
    found = specimen.documents
    if found is None:
        texts = [*BESIDE]
        texts.insert(len(specimen.text) % 3, specimen.text)  # some defenses look at the best one only, or skip it
        found = tuple(Document(t, f"doc-{i}", s) for i, (t, s) in enumerate(zip(texts, (0.9, 0.7, 0.5), strict=True)))
    return [Document(d.content, d.id, d.score, dict(d.metadata)) for d in found]


def question(specimen: Specimen) -> str:
    """What the model is asked, with the specimen's text as context."""
    return f"Answer from this context.\n\n{specimen.text}\n\nQuestion: {QUERY}"
