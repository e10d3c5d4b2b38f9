"""Synthetic-Email: e-mail formatted business texts with Enron-era surnames, generated and seeded.

After Mind the Hook's corpus of that name (50 documents there). Nothing in it is a real message: surnames are
drawn independently of first names, companies and their domains are made up, and telephone numbers are of the
555-01xx range that is reserved for fiction. ``metadata["entities"]`` holds the planted entities as
``{"type", "text"}``, with the types of ``ragtrace.ner``; each text occurs literally in the content.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import TYPE_CHECKING

from ragtrace.corpora import _email_words as words
from ragtrace.corpora.base import split
from ragtrace.types import Document

if TYPE_CHECKING:
    from ragtrace.types import Corpus

MIN_CHARS, MAX_CHARS = 400, 900
"""Length of every document, headers included."""


class SyntheticEmail:
    """The corpus source ``synthetic_email``.

    :param longest: no e-mail has more characters, as far as its fixed parts allow: below 400 it is a short note (about
        330 characters) without date, company and telephone.
    """

    name = "synthetic_email"

    def __init__(self, longest: int = MAX_CHARS) -> None:
        self.longest = longest

    def build(self, n: int, seed: int, non_members: int = 0) -> Corpus:
        """``n`` members and ``non_members`` others, ids ``email-0001`` and so on over the whole pool.

        The field ``near_duplicates_removed`` of the result says how many drafts were replaced.

        :raises InputError: for n < 1 or non_members < 0.
        """
        rng = random.Random(f"{self.name} {seed}")  # noqa: S311 (seeded on purpose)
        made = 0

        def draw(count: int) -> list[Document]:
            nonlocal made
            documents = [_email(rng, f"email-{made + i:04d}", self.longest) for i in range(1, count + 1)]
            made += count
            return documents

        return split(self.name, seed, draw, n, non_members)


def _email(rng: random.Random, id: str, longest: int) -> Document:
    """One e-mail; sentences are added until it is long enough and none would make it too long."""
    company, domain = rng.choice(words.COMPANIES)
    topic = rng.choice(sorted(words.TOPICS))
    sender, recipient, third = _people(rng, 3)
    reference = f"{rng.choice(words.REFERENCE_PREFIXES)}-{rng.randint(10_000, 99_999)}"
    phone = f"({rng.choice(words.AREA_CODES)}) 555-01{rng.randint(0, 99):02d}"
    sender_mail, recipient_mail = _address(sender, domain), _address(recipient, domain)
    day = datetime(1999, 1, 4, tzinfo=UTC) + timedelta(minutes=rng.randrange(3 * 365 * 24 * 60))
    slots = {
        "third": third,
        "company": company,
        "counterparty": rng.choice([c for c, _ in words.COMPANIES if c != company]),
        "reference": reference,
        "phone": phone,
        "city": rng.choice(words.CITIES),
        "weekday": rng.choice(words.WEEKDAYS),
        "month": rng.choice(words.MONTHS),
        "day": str(rng.randint(2, 28)),
        "project": f"{rng.choice(words.PROJECT_FIRST)} {rng.choice(words.PROJECT_SECOND)}",
        "amount": f"${rng.randint(12, 980)},{rng.randint(0, 999):03d}",
        "percent": f"{rng.randint(2, 48)}.{rng.randint(0, 9)} percent",
        "number": str(rng.randint(3, 460)),
    }
    subject = f"{rng.choice(words.TOPICS[topic].subjects)} - {slots['project']}".format_map(slots)
    note = longest < MIN_CHARS
    date = "" if note else f"Date: {format_datetime(day)}\n"
    head = f"From: {sender} <{sender_mail}>\nTo: {recipient} <{recipient_mail}>\nSubject: {subject}\n{date}\n"
    close = f"\n\n{rng.choice(words.CLOSINGS)}\n{sender}" + ("" if note else f"\n{company}, {phone}")
    greeting = f"{recipient.split()[0]},\n\n"
    # the reference and the third person are in every body: ground truth that is not in the header
    body = [rng.choice(words.OPENINGS).format_map(slots), rng.choice(words.PLANTED).format_map(slots)]
    more = [*words.TOPICS[topic].sentences, *rng.sample(words.COMMON, 4)]
    rng.shuffle(more)
    target = rng.randint(min(MIN_CHARS + 100, longest), max(longest - 60, min(MIN_CHARS, longest)))
    for sentence in (s.format_map(slots) for s in more):
        length = len(head) + len(greeting) + sum(len(s) + 1 for s in (*body, sentence)) + len(close)
        if length <= target:
            body.insert(rng.randint(1, len(body)), sentence)
    entities = [
        *(("PERSON_NAME", name) for name in (sender, recipient, third)),
        *(("EMAIL_REAL", address) for address in (sender_mail, recipient_mail)),
        *([] if note else [("PHONE", phone)]),
        ("IDENTIFIER", reference),
    ]
    return Document(
        content=f"{head}{greeting}{' '.join(body)}{close}",
        id=id,
        metadata={
            "topic": topic,
            "subject": subject,
            "entities": [{"type": kind, "text": text} for kind, text in entities],
        },
    )


def _people(rng: random.Random, count: int) -> list[str]:
    first, last = rng.sample(words.FIRST_NAMES, count), rng.sample(words.SURNAMES, count)
    return [f"{f} {s}" for f, s in zip(first, last, strict=True)]


def _address(person: str, domain: str) -> str:
    return f"{person.lower().replace(' ', '.')}@{domain}"


CORPUS = SyntheticEmail()
build = CORPUS.build
