"""Stores for the report's tests: a small audit with a bypass, the 432-cell grid, and one full of hostile text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from runs import digest
from store_fixtures import Bench, effect

from ragtrace.record import attributes as a

SECRET = "Zebulon Quill"
ARMS = ("none", "mask", "noise", "dp_r", "rewrite", "substitute", "prompt_modifying")


def ask(
    bench: Bench,
    run: str,
    arm: str,
    probe: str,
    response: str,
    effects: Sequence[dict[str, Any]] = (),
    *,
    attack: str = "canary",
    seed: int = 1,
    query: str = "Who signs?",
    target: str | None = None,
    member: bool | None = None,
    found: tuple[tuple[str, str], ...] = (("d1", "It is signed."),),
    kept: tuple[tuple[str, str], ...] | None = None,
    path: str = "invoke",
    declared: dict[str, list[str]] | None = None,
    sent: str | None = None,
) -> None:
    """One probe's request: a retrieval with its documents and a generation with its answer."""
    who = {a.RUN_ID: run, a.PROBE_ID: probe, a.ARM: arm, a.CAPTURE: "full"}
    truth = {
        "attack": attack,
        "corpus": "c",
        "seed": seed,
        "query": query,
        "target_id": target,
        "is_member": member,
    }
    early = [e for e in effects if e["hook"] in ("query", "retrieval", "content")]
    late = [e for e in effects if e not in early]
    given = {} if declared is None else {a.DECLARED: declared}
    with bench.request(path, **who, **{a.PROBE: truth}, **given):
        documents: dict[str, Any] = {
            a.RETRIEVAL_QUERY: query,
            a.RETRIEVAL_DOCUMENTS: [
                {"id": i, "hash": digest(t), "content": t, "score": 0.5, "metadata": {i: t}} for i, t in found
            ],
        }
        if kept is not None:
            documents[a.AFTER_DEFENSE] = [{"id": i, "hash": digest(t), "content": t, "score": 0.4} for i, t in kept]
        if sent is not None:
            documents[a.QUERY_SENT] = sent
        with bench.stage("retrieval", path, **who, **documents, effects=early):
            pass
        said = [{"role": "assistant", "parts": [{"content": response, "chars": len(response)}]}]
        messages = [{"role": "user", "parts": [{"content": f"{found[0][1]}\n{query}"}]}]
        with bench.stage(
            "generation",
            path,
            **who,
            effects=late,
            **{
                a.OUTPUT_MESSAGES: said,
                a.INPUT_MESSAGES: messages,
                a.RESPONSE_HASH: digest(response),
                a.QUERY: query,
                a.REQUEST_MODEL: "m",
            },
        ):
            pass


def manifest(
    bench: Bench, run: str, canaries: Sequence[dict[str, Any]] = (), arms: Any = None, seed: Any = None
) -> None:
    told = {"arms": arms or {"none": [], "mask": ["house-mask"]}, "canaries": list(canaries), "seed": seed}
    with bench.span("run", {a.RUN_ID: run, a.RUN: told}):
        pass


def result(db: Any, run: str, arm: str, metric: str, value: float | None, **more: Any) -> None:
    row = {
        "run_id": run,
        "arm": arm,
        "defense": None,
        "attack": "canary",
        "corpus": "c",
        "metric": metric,
        "channel": "response",
        "value": value,
        "ci_low": None,
        "ci_high": None,
        "n": 5,
        "interpretable": "interpretable",
        "reason": "acts at response",
        "signature": f"ragtrace:0|metric:{metric}|n:5",
    } | more
    db.execute(f"INSERT INTO result_data ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})", list(row.values()))


def scores(db: Any, rows: list[tuple[Any, ...]]) -> None:
    db.executemany("INSERT INTO score_data VALUES (?, ?, ?, ?, ?, ?)", rows)


def small(folder: Path) -> Path:
    """Two arms; ``house-mask`` masks on invoke and is gone round on the stream; one canary leaks without it."""
    bench = Bench(folder / "small.duckdb")
    bench.open().close()
    manifest(
        bench,
        "r",
        [
            {"text": SECRET, "family": "person", "document_id": "d1"},
            {"text": "aa@bb.cc", "family": "email", "document_id": "d1"},
        ],
        seed=1,
    )
    claims = {"house-mask": ["response"]}
    masked = [effect("house-mask", "response", text_changed=True, chars_before=23, chars_after=19)]
    for n in (1, 2):
        ask(bench, "r", "none", f"canary-{n}", f"Signed by {SECRET} today" if n == 1 else "No.", declared={})
        ask(
            bench,
            "r",
            "mask",
            f"canary-{n}",
            "Signed by [PERSON] today" if n == 1 else "No.",
            masked if n == 1 else [effect("house-mask", "response", "unchanged")],
            declared=claims,
        )
    ask(bench, "r", "mask", "canary-3", f"Streamed {SECRET}", path="stream", declared=claims)
    rewritten = effect("rewriter", "content", text_changed=True, documents_before=1, documents_after=1)
    ask(
        bench,
        "r",
        "mask",
        "canary-4",
        "No.",
        [rewritten],
        found=(("d1", f"By {SECRET}."),),
        kept=(("d1", "By [NAME]."),),
    )
    for n in range(6):
        ask(bench, "r", "none", f"s2mia-{n}", "x", attack="s2mia", target=f"d{n}", member=n % 2 == 0)
    with bench.open() as db:
        scores(
            db, [("r", f"s2mia-{n}", "none", "s2mia", "bleu", v) for n, v in enumerate((3.0, 2.5, 2.0, 1.0, 0.5, 0.0))]
        )
        scores(db, [("r", f"canary-{n}", "none", "canary", "extraction_coverage", n / 4) for n in (1, 2)])
        for arm, value, low, high in (("none", 0.5, 0.25, 0.75), ("mask", 0.0, None, None)):
            result(db, "r", arm, "canary_recovery_person", value, ci_low=low, ci_high=high)
            result(db, "r", arm, "utility_refusal_rate", 0.0, attack="benign", ci_low=0.0, ci_high=0.3)
        result(db, "r", "mask", "house_metric", 7.0, interpretable="nuisance", reason="acts elsewhere")
        result(db, "r", "none", "canary_recovery_id", None, interpretable="no data", reason="no data: none planted")
    return bench.database


def grid(folder: Path) -> Path:
    """72 runs × 6 defenses (and the undefended arm): the 432 cells of Mind the Hook, with texts, scores and results."""
    bench = Bench(folder / "grid.duckdb")
    bench.open().close()
    runs = [
        f"mi-{c}-{m}-{e}-{k}"
        for c in ("corp", "email", "pubmed")
        for m in ("full", "strict")
        for e in ("eps01", "eps10")
        for k in range(6)
    ]
    text = "The quarterly report was signed by Ann Lee and sent to ann.lee@corp.com on Monday. " * 3
    for run in runs:
        manifest(
            bench,
            run,
            [{"text": f"canary {run} {i}", "family": "person", "document_id": f"d{i}"} for i in range(10)],
            {arm: [] if arm == "none" else [arm] for arm in ARMS},
            1,
        )
        for arm in ARMS:
            done = (
                [] if arm == "none" else [effect(arm, "response" if arm != "noise" else "retrieval", text_changed=True)]
            )
            ask(bench, run, arm, "canary-001", f"{text} canary {run} 3", done, found=(("d3", text),))
            if run.endswith("-0"):  # the membership attack's
                for n in range(20):
                    ask(bench, run, arm, f"mi-{n:03}", "Yes", attack="mi_response", target=f"d{n}", member=n % 2 == 0)
    reason = (
        "acts only at retrieval, not where this metric may be moved (content, response); the answer differs from the "
        "undefended one in 12 of 12 probes: in 12 through retrieval; "
    )
    with bench.open() as db:
        metrics = (
            "canary_recovery_person",
            "canary_recovery_decoded",
            "extraction_coverage",
            "nel_strict",
            "nel_email",
            "nel_person",
            "mi_response_roc_auc",
            "mi_response_tpr_at_1pct_fpr",
            "utility_bleu_to_undefended",
        )
        db.execute(
            "INSERT INTO result_data (run_id, arm, attack, corpus, metric, channel, value, ci_low, ci_high, n, "
            "interpretable, reason, signature) SELECT r, a, 'canary', 'c', m, 'response', v, v - 0.1, v + 0.1, 50, "
            "CASE WHEN a IN ('noise', 'dp_r') THEN 'indirect' ELSE 'interpretable' END, "
            "concat($reason, a), concat('ragtrace:0.1.0|schema:1|metric:', m, '|family:email|probes:12|answered:12|"
            "recovered:', (v * 50)::INT, '|interval:clopper-pearson|seed:101|n:50|model:SmolLM2-135M-Instruct') "
            "FROM (SELECT *, hash(r || a || m) % 1000 / 1000 AS v FROM unnest($runs::VARCHAR[]) AS x(r), "
            "unnest($arms::VARCHAR[]) AS y(a), unnest($metrics::VARCHAR[]) AS z(m))",
            {"runs": runs, "arms": list(ARMS), "metrics": list(metrics), "reason": reason},
        )
        db.execute(
            "INSERT INTO score_data SELECT run_id, probe_id, arm, attack, if(attack = 'canary', 'extraction_coverage', "
            "attack), hash(run_id || probe_id || arm) % 100 / 100 FROM probes"
        )
    return bench.database


RTL, ANSI = "\u202egpj.exe", "\x1b[31mred\x1b]0;own\x07"
HOSTILE = [
    "<script>window.owned=1</script>",
    "</script><script>window.owned=1</script>",
    "</style><script>window.owned=1</script>",
    "<img src=x onerror=window.owned=1>",
    "<svg onload=window.owned=1>",
    "<svg><script>window.owned=1</script></svg>",
    '"><script>window.owned=1</script>',
    "' onmouseover='window.owned=1",
    '" autofocus onfocus="window.owned=1',
    "javascript:window.owned=1",
    "<a href=javascript:window.owned=1>x</a>",
    "<iframe src=javascript:window.owned=1>",
    "<body onload=window.owned=1>",
    "<details open ontoggle=window.owned=1>",
    "<input autofocus onfocus=window.owned=1>",
    "<math><mtext></mtext><script>window.owned=1</script></math>",
    "<!--><script>window.owned=1</script>",
    "--><b>",
    "<![CDATA[<script>window.owned=1</script>]]>",
    "{{ 7*7 }}{% raw %}",
    "{{ report.__class__ }}",
    "${window.owned=1}",
    "<meta http-equiv=refresh content=0;url=http://example.com>",
    "<link rel=stylesheet href=http://example.com/x.css>",
    "<base href=http://example.com/>",
    "<form action=http://example.com><button>",
    "<img src=http://example.com/x.png>",
    "<style>*{display:none}</style>",
    "background:url(http://example.com)",
    "</textarea></title></noscript><script>window.owned=1</script>",
    RTL,
    "\u2066\u2067\u2069",
    "\u200b\u200d\ufeff",
    ANSI,
    "\x00\x01\x02",
    "\u2028\u2029line",
    "\r\n\r\nHTTP/1.1 200",
    "'; DROP TABLE span_data; --",
    '" OR 1=1 --',
    "$$\\frac{1}{0}$$",
    "$x^{",
    "\\begin{x}",
    "W" * 1_000_000,
    "word " * 50_000,
    "Z\u0351\u036b\u0343" * 200,
    "👩‍👩‍👧‍👦" * 50,
    "العربية عربي",
    "𝕏" * 300,
    "_hidden",
    "& &amp; &lt; &#60;script&#62;",
]


def hostile(folder: Path) -> Path:
    """Each of the 50 strings as defense, arm, path, ids, text, metadata, query, answer, metric and reason."""
    assert len(HOSTILE) == 50
    bench = Bench(folder / "hostile.duckdb")
    bench.open().close()
    short = [s[:2000] for s in HOSTILE]  # a name of a megabyte, 50 times in each of ten places, is only slow
    short[42] = HOSTILE[42]
    manifest(
        bench,
        "r",
        [{"text": s, "family": s, "document_id": s} for s in short],
        {"none": [], **{s: [s] for s in short}},
        1,
    )
    for i, s in enumerate(short):
        claims = {s: ["response", "content", "query"]}
        effects = [effect(s, h, text_changed=True, error=s) for h in ("query", "content", "response")]
        ask(bench, "r", "none", f"p{i}", "plain", query=s, found=((s, s),))
        ask(
            bench,
            "r",
            s,
            f"p{i}",
            s,
            effects,
            query="q",
            sent=s,
            found=((s, "before " + s),),
            kept=((s, "after " + s),),
            declared=claims,
        )
        ask(bench, "r", s, f"{s[:300]}-{i}", s, declared=claims, path="stream", attack=s, seed=i)
    with bench.open() as db:
        for i, s in enumerate(short):
            result(
                db,
                "r",
                s,
                "canary_recovery_person",
                i / 50,
                attack="canary",
                ci_low=0.0,
                ci_high=1.0,
                reason=s,
                signature=s,
            )
            result(db, "r", "none", s, 0.5, attack=s, corpus=s, reason=s, signature=s, interpretable=s)
            result(db, s, "none", s, 0.5, reason=s)
            db.execute("INSERT INTO inventory_data VALUES (?, 'duck', 'prompt', 'stub', ?, 1, ?)", [s, s, s])
            db.execute(
                "INSERT INTO battery_data (defense, hook, family, status, n, changed) "
                "VALUES (?, 'response', ?, 'changes', 2, 1)",
                [s, s],
            )
        scores(db, [("r", f"p{i}", s, "canary", "extraction_coverage", 0.5) for i, s in enumerate(short)])
    return bench.database
