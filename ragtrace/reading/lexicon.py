"""Do a defense and a scorer know the same words? Then the scorer's number says what they share, not what leaked.

Two ways to fail (Mind the Hook, step 3). *False protection*: the scorer leaves out what the defense writes, as a
placeholder or an ambiguous name, so its count falls by definition. *False leakage*: it counts what the defense
writes, as invented names. What a defense writes are its ``constants()``, and what was seen in its arm's texts and
cannot have come from elsewhere. Only what has the form of an entity matters: a mask such as ``[EMAIL]`` is no
address to any scorer, so leaving it out is no agreement between the two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import duckdb

    from ragtrace.types import Entity, Hook

LEFT_OUT = {"EMAIL_REAL": ("EMAIL_PLACEHOLDER",), "PERSON_NAME": ("PERSON_NAME_PLACEHOLDER", "PERSON_NAME_AMBIGUOUS")}
"""Type that a scorer counts → the types beside it that it leaves out."""
_OFTEN = 2  # requests that must show a string before the defense is said to write it: a model invents one now and then

# What the arm's documents hold after its content defenses and did not before, each text once.
_REWRITTEN = """
SELECT list(DISTINCT d.trace_id), d.content
FROM documents d SEMI JOIN acts ON acts.trace_id = d.trace_id AND acts.hook = 'content'
ANTI JOIN (
    SELECT trace_id, content_hash FROM documents WHERE phase = 'retrieved' AND run_id = $run AND arm = $arm
) r ON r.trace_id = d.trace_id AND r.content_hash = d.content_hash
WHERE d.phase = 'after_defense' AND d.content IS NOT NULL AND d.run_id = $run AND d.arm = $arm
GROUP BY d.content
"""
_ACTS = """
acts AS (
    SELECT DISTINCT e.trace_id, e.hook FROM effects e JOIN switched_on USING (run_id, arm, defense)
    WHERE e.run_id = $run AND e.arm = $arm AND e.status = 'changed'
)
"""
# Without what stands in the query or a document: most entities of an answer, sorted out before they are compared.
_ANSWERED = """
SELECT DISTINCT e.trace_id, e.text, e.type
FROM entities e SEMI JOIN acts ON acts.trace_id = e.trace_id AND acts.hook = 'response'
WHERE e.run_id = $run AND e.arm = $arm AND NOT e.in_query AND NOT e.in_documents
"""


class Shared(NamedTuple):
    """Words that the scorer's lexicons and the defense have in common, by what the scorer does with them."""

    left_out: list[str]
    counted: list[str]


def written(db: duckdb.DuckDBPyConnection, run: str, arm: str, hooks: Sequence[Hook]) -> frozenset[str]:
    """Entities that the arm's defenses were seen to write at ``hooks``: in two requests or more where they changed the
    text, and neither in the query, nor in what was retrieved, nor in any undefended answer.
    """
    from ragtrace.ner import entities

    values = {"run": run, "arm": arm}
    seen: set[tuple[str, str]] = set()  # trace, entity
    if "content" in hooks:
        for traces, content in db.execute(f"WITH {_ACTS} {_REWRITTEN}", values).fetchall():
            found = {e.text for e in entities(content) if _written(e.type, e.text)}
            seen |= {(trace, text) for trace in traces for text in found}
    if "response" in hooks:
        for trace, text, kind in db.execute(f"WITH {_ACTS} {_ANSWERED}", values).fetchall():
            if _written(kind, text):
                seen.add((trace, text))
    if not seen:
        return frozenset()
    rows = db.execute(
        """
        WITH seen AS (SELECT unnest($traces::VARCHAR[]) AS trace_id, unnest($texts::VARCHAR[]) AS text),
        often AS (SELECT text FROM seen GROUP BY text HAVING count(DISTINCT trace_id) >= $often),
        given AS (
            SELECT trace_id, content AS given FROM documents WHERE phase = 'retrieved' AND run_id = $run AND arm = $arm
            UNION ALL SELECT trace_id, query FROM probes WHERE run_id = $run AND arm = $arm
        ), own AS (
            SELECT DISTINCT s.text FROM seen s SEMI JOIN often USING (text)
            ANTI JOIN given g ON g.trace_id = s.trace_id AND contains(lower(g.given), lower(s.text))
        )
        SELECT text FROM own ANTI JOIN (
            SELECT response FROM generations WHERE run_id = $run AND arm = 'none'
        ) b ON contains(lower(b.response), lower(own.text))
        """,
        {"traces": [t for t, _ in seen], "texts": [x for _, x in seen], "often": _OFTEN, **values},
    ).fetchall()
    return frozenset(text for (text,) in rows)


def shared(texts: Iterable[str], types: Sequence[str]) -> Shared:
    """The words of ``texts`` by which a scorer that counts ``types`` leaves out or counts what they say."""
    left_out: set[str] = set()
    counted: set[str] = set()
    beside = {kind for counts in types for kind in LEFT_OUT.get(counts, ())}
    for text in texts:
        for entity in _entities(text):
            if not _written(entity.type, entity.text):
                continue
            if entity.type in types:
                counted |= _known(entity.text)
            elif entity.type in beside:
                left_out |= _known(entity.text)
    return Shared(sorted(left_out), sorted(counted))


def _entities(text: str) -> list[Entity]:
    """Those of ``text``; words that a defense keeps in small letters are read as it would write them."""
    from ragtrace.ner import entities

    found = entities(text)
    return found or (entities(text.title()) if len(text.split()) <= 3 and text.islower() and "@" not in text else [])


def _written(kind: str, text: str) -> bool:
    """Whether it has the form of what it may stand for."""
    return "@" in text if kind.startswith("EMAIL") else text[:1] not in "[<{"


def _known(text: str) -> set[str]:
    """The entries of the scorer's lexicons by which it knows the entity, or else the entity."""
    from ragtrace.ner import vocabulary

    text = text.casefold()
    if text in vocabulary():
        return {text}
    mailbox, at, domain = text.rpartition("@")
    if at:
        labels = domain.split(".")
        parts = [domain, ".".join(labels[-2:]), f".{labels[-1]}", f"{labels[0]}.", mailbox]
        return {next((part for part in parts if part in vocabulary()), text)}
    return {word.strip(".,'’") for word in text.split()} & vocabulary() or {text}
