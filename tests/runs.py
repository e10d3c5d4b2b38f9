"""An audit run made by hand: probes, what each stage gave, and what the defenses did, in any arm."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import duckdb
from store_fixtures import Bench, Row, effect

from ragtrace.record import attributes as a


def digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:32]


class Run:
    """Writes spans of one run; ``open`` gives the store."""

    def __init__(
        self,
        bench: Bench,
        arms: dict[str, list[str]] | None = None,
        constants: dict[str, list[str]] | None = None,
        canaries: Sequence[tuple[str, str]] = (),
    ) -> None:
        self.bench = bench
        planted = [{"text": t, "family": f, "document_id": f"d{i}"} for i, (f, t) in enumerate(canaries)]
        if arms is not None:
            manifest = {"arms": arms, "constants": constants or {}, "canaries": planted}
            with bench.span("run", {a.RUN_ID: "r", a.RUN: manifest}):
                pass

    def ask(
        self,
        arm: str,
        probe: str,
        response: str | None,
        acts: Sequence[tuple[str, str]] = (),
        *,
        attack: str = "canary",
        query: str = "q",
        found: Sequence[tuple[str, str]] = (("d1", "text one"), ("d2", "text two")),
        kept: Sequence[tuple[str, str]] | None = None,
        corpus: str = "c",
        earlier: Sequence[str] = (),
        seed: int = 1,
        **changes: Any,
    ) -> None:
        """One request. ``acts`` are (defense, hook) that changed something.

        ``response`` is ``None`` where the model failed; ``earlier`` is what it said in calls before the last.
        """
        who = {a.RUN_ID: "r", a.PROBE_ID: probe, a.ARM: arm, a.CAPTURE: "full"}
        asked = {"attack": attack, "corpus": corpus, "seed": seed, "query": query}
        kept_rows = None if kept is None else [{"id": i, "hash": digest(t), "content": t} for i, t in kept]
        entries = [effect(d, h, text_changed=True, **changes) for d, h in acts]
        early = [e for e in entries if e["hook"] in ("query", "retrieval", "content")]
        late = [e for e in entries if e["hook"] in ("prompt", "response")]
        texts = "\n".join(t for _, t in (found if kept is None else kept))
        with self.bench.request(**who, **{a.PROBE: asked}):
            documents = {a.RETRIEVAL_DOCUMENTS: [{"id": i, "hash": digest(t), "content": t} for i, t in found]}
            after = {} if kept_rows is None else {a.AFTER_DEFENSE: kept_rows}
            with self.bench.stage(
                "retrieval", **who, **documents, **after, **{a.RETRIEVAL_QUERY: query}, effects=early
            ):
                pass
            for text in (*earlier, response):
                self._generate(text, f"{texts}\n{query}", query, who, late)

    def _generate(self, text: str | None, prompt: str, query: str, who: Row, effects: list[Row]) -> None:
        said = {} if text is None else {
            a.OUTPUT_MESSAGES: [{"role": "assistant", "parts": [{"content": text, "chars": len(text)}]}],
            a.RESPONSE_HASH: digest(text),
        }  # fmt: skip
        messages = [{"role": "user", "parts": [{"content": prompt}]}]
        stage = {a.INPUT_MESSAGES: messages, a.QUERY: query, a.REQUEST_MODEL: "m", **said}
        with self.bench.stage("generation", **who, **stage, effects=effects):
            pass

    def open(self) -> duckdb.DuckDBPyConnection:
        return self.bench.open()
