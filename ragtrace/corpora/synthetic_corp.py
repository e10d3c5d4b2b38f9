"""Synthetic-Corp: business documents of ten kinds (complaints, minutes, incident reports, …), generated and seeded.

After Mind the Hook's corpus of that name (50 templated business documents there). Nothing in it is real: companies,
their domains and addresses are made up, persons are drawn independently by first name and surname, and telephone
numbers are of the 555-01xx range that is reserved for fiction. ``metadata["entities"]`` holds the planted entities as
``{"type", "text"}``, with the types of ``ragtrace.ner``; each text occurs literally in the content.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from ragtrace.corpora import _corp_words as words
from ragtrace.corpora.base import split
from ragtrace.types import Document

if TYPE_CHECKING:
    from ragtrace.types import Corpus

SENTENCES = (5, 8)
"""Fewest and most sentences beside the planted ones."""


class SyntheticCorp:
    """The corpus source ``synthetic_corp``: templated business text of any size."""

    name = "synthetic_corp"

    def build(self, n: int, seed: int, non_members: int = 0) -> Corpus:
        """``n`` members and ``non_members`` others, ids ``corp-0001`` and so on over the whole pool.

        The field ``near_duplicates_removed`` of the result says how many drafts were replaced.

        :raises InputError: for n < 1 or non_members < 0.
        """
        rng = random.Random(f"{self.name} {seed}")  # noqa: S311 (seeded on purpose)
        made = 0

        def draw(count: int) -> list[Document]:
            nonlocal made
            documents = [_paper(rng, f"corp-{made + i:04d}") for i in range(1, count + 1)]
            made += count
            return documents

        return split(self.name, seed, draw, n, non_members)


def _paper(rng: random.Random, id: str) -> Document:
    """One document; the author's address is in its head, the other company's contact in its text."""
    kind = rng.choice(words.KINDS)
    (company, domain), (client, client_domain) = rng.sample(words.COMPANIES, 2)
    author, contact = (
        f"{first} {last}"
        for first, last in zip(rng.sample(words.FIRST_NAMES, 2), rng.sample(words.SURNAMES, 2), strict=True)
    )
    product = f"{rng.choice(words.PRODUCT_FIRST)} {rng.choice(words.PRODUCT_SECOND)}"
    city = rng.choice(words.CITIES)
    street = f"{rng.randint(10, 990)} {rng.choice(words.STREETS)} {rng.choice(words.STREET_ENDINGS)}"
    phone = f"({rng.choice(words.AREA_CODES)}) 555-01{rng.randint(0, 99):02d}"
    number, reference = (f"{rng.choice(words.PREFIXES)}-{rng.randint(10_000, 99_999)}" for _ in range(2))
    slots = {
        "company": company,
        "client": client,
        "contact": contact,
        "contact_mail": _address(contact, client_domain),
        "reference": reference,
        "phone": phone,
        "product": product,
    }
    title = _filled(rng, rng.choice(kind.titles), slots | {"project": f"the {product} plan"})
    slots["project"] = f'"{title}"'
    common = [rng.choice(words.OPENINGS), rng.choice(words.PLANTED), rng.choice(words.WITH_CODE)]
    own = rng.sample(kind.sentences, rng.randint(*SENTENCES) - 2) + rng.sample(words.COMMON, 2)
    body = [_filled(rng, sentence, slots) for sentence in [*common[1:], *own]]
    rng.shuffle(body)
    head = (
        f"Title: {title}\nDepartment: {kind.department}, {company}\nNumber: {number}\n"
        f"Author: {author} <{_address(author, domain)}>\nOffice: {street}, {city}\nTelephone: {phone}\n\n"
    )
    entities = [
        *(("PERSON_NAME", name) for name in (author, contact)),
        *(("EMAIL_REAL", address) for address in (_address(author, domain), slots["contact_mail"])),
        ("PHONE", phone),
        *(("IDENTIFIER", code) for code in dict.fromkeys((number, reference))),
        ("ADDRESS", street),
        *(("ORG_TITLE", firm) for firm in (company, client)),
    ]
    return Document(
        content=f"{head}{_filled(rng, common[0], slots)} {' '.join(body)}",
        id=id,
        metadata={
            "topic": kind.topic,
            "subject": title,
            "entities": [{"type": type, "text": text} for type, text in entities],
        },
    )


def _filled(rng: random.Random, sentence: str, slots: dict[str, str]) -> str:
    """The sentence with the document's own slots, and with figures, days and places that are drawn for it."""
    drawn = {
        "city": rng.choice(words.CITIES),
        "weekday": rng.choice(words.WEEKDAYS),
        "month": rng.choice(words.MONTHS),
        "day": str(rng.randint(2, 28)),
        "number": str(rng.randint(3, 460)),
        "amount": f"${rng.randint(2, 980)},{rng.randint(0, 999):03d}",
        "percent": f"{rng.randint(2, 48)}.{rng.randint(0, 9)} percent",
    }
    return sentence.format_map(slots | drawn)


def _address(person: str, domain: str) -> str:
    return f"{person.lower().replace(' ', '.')}@{domain}"


CORPUS = SyntheticCorp()
build = CORPUS.build
