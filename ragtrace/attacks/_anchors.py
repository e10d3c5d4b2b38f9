"""What probes are aimed at: the subjects and topics of a corpus, never its canaries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ragtrace.errors import InputError, UsageError

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from ragtrace.types import Corpus

FIRST_WORDS = 6
"""How many words of a document stand for its topic where its metadata names none."""


def anchors(corpus: Corpus) -> list[str]:
    """Different topics of the corpus, members and non-members alike: an attacker knows the distribution only.

    ``metadata["subject"]`` and ``metadata["topic"]`` where documents have them, else a document's first words.
    A topic that holds a canary, or the domain of one, is left out.

    :raises InputError: where no topic is left.
    """
    secrets = {part for c in corpus.canaries for part in (c.text.casefold(), *c.text.casefold().split("@")[1:])}
    found: dict[str, None] = {}
    for document in (*corpus.members, *corpus.non_members):
        named = [str(document.metadata[k]) for k in ("topic", "subject") if document.metadata.get(k)]
        for anchor in named or [" ".join(document.content.split()[:FIRST_WORDS])]:
            if anchor and not any(secret in anchor.casefold() for secret in secrets):
                found[anchor] = None
    if not found:
        raise InputError(f"corpus {corpus.name!r} has no topic to ask about; expected documents with text")
    return sorted(found)


def fill(templates: Sequence[str], topics: Sequence[str], count: int, rng: random.Random) -> list[str]:
    """``count`` different queries; topics and templates are shuffled and each used up before one comes again.

    :raises UsageError: for count < 1, or more than the templates and topics can make.
    """
    if not 1 <= count <= len(templates) * len(topics):
        raise UsageError(
            f"{count} queries asked for; expected 1 to {len(templates) * len(topics)} "
            f"({len(templates)} templates, {len(topics)} topics of this corpus)"
        )
    shuffled_templates = rng.sample(templates, len(templates))
    shuffled_topics = rng.sample(topics, len(topics))
    made: dict[str, None] = {}
    for turn in range(len(templates)):
        for i, topic in enumerate(shuffled_topics):
            made[shuffled_templates[(i + turn) % len(templates)].format(topic)] = None
            if len(made) == count:
                return list(made)
    raise UsageError(f"only {len(made)} different queries could be made; expected {count}: ask for fewer")
