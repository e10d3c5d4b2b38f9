"""The commands ``papers s2mia`` and ``papers mind-the-hook``: arguments in, the work is done elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ragtrace.cli_help import console
from ragtrace.cli_json import Json, say_papers

papers = typer.Typer(help="The papers' tables, for the model at hand.", no_args_is_help=True)


@papers.command()
def s2mia(
    out: Annotated[Path, typer.Option(help="Folder for traces, tables and plots; resumed if it is there.")] = Path(
        "s2mia"
    ),
    size: Annotated[int, typer.Option(help="Targets of each kind in the reference set; the paper has 1,000.")] = 1000,
    dataset: Annotated[list[str] | None, typer.Option(help="natural_questions, triviaqa; may be given again.")] = None,
    retriever: Annotated[
        list[str] | None, typer.Option(help="minilm, contriever, dpr, or any; may be given again.")
    ] = None,
    attack: Annotated[list[str] | None, typer.Option(help="An attack, 'paper' or 'all'; may be given again.")] = None,
    defenses: Annotated[bool, typer.Option(help="Table 4 as well.")] = True,
    model: Annotated[str, typer.Option(help="embedded, provider:model, or URL#model.")] = "embedded",
    max_tokens: Annotated[int, typer.Option(help="Longest answer.")] = 48,
    data: Annotated[Path | None, typer.Option(help="Folder with nq.jsonl and triviaqa.jsonl.")] = None,
    seed: Annotated[int, typer.Option(help="Of the split, the targets and the attacks.")] = 101,
    concurrency: Annotated[int, typer.Option(help="Requests at a time.")] = 1,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say how much would be asked.")] = False,
    as_json: Json = False,
) -> None:
    """Tables 1 to 4 of S²MIA (arXiv 2406.19234), the paper's values beside ours, and Figure 2."""
    from ragtrace.papers import s2mia as paper

    groups = {"paper": paper.PAPER_ATTACKS, "all": (*paper.PAPER_ATTACKS, *paper.NEWER_ATTACKS)}
    attacks = dict.fromkeys(name for given in attack or ["paper"] for name in groups.get(given, (given,)))
    design = paper.Design(
        size=size, datasets=tuple(dataset or paper.Design.datasets), retrievers=tuple(retriever or ["minilm"]),
        attacks=tuple(attacks), defenses=defenses, model=model, max_tokens=max_tokens, seed=seed,
    )  # fmt: skip
    paper.main(design, out, console(err=as_json), data=data, concurrency=concurrency, dry_run=dry_run)
    if as_json:
        say_papers(out, "s2mia", not dry_run)


@papers.command("mind-the-hook")
def mind_the_hook(
    out: Annotated[Path, typer.Option(help="Folder for traces and tables; resumed if it is there.")] = Path(
        "mind-the-hook"
    ),
    quick: Annotated[bool, typer.Option("--quick", help="A small part: one corpus, three attacks.")] = False,
    seed: Annotated[list[int] | None, typer.Option(help="Seed of corpora and attacks; may be given again.")] = None,
    queries: Annotated[int | None, typer.Option(help="Queries of an extraction attack in a cell.")] = None,
    model: Annotated[str, typer.Option(help="embedded, provider:model, or URL#model.")] = "embedded",
    data: Annotated[Path | None, typer.Option(help="Folder with pubmedqa.jsonl.")] = None,
    recommended: Annotated[
        bool, typer.Option("--recommended", help="Also the combination that the battery recommends, as an arm.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say how much would be asked.")] = False,
    as_json: Json = False,
) -> None:
    """The 432-cell grid and Tables I to III of Mind the Hook (arXiv 2608.09001), the paper's values beside ours."""
    from dataclasses import replace

    from ragtrace.papers import mind_the_hook as paper

    design = replace(paper.QUICK if quick else paper.Design(), model=model)
    if seed:
        design = replace(design, seeds=tuple(dict.fromkeys(seed)))
    if queries is not None:
        design = replace(design, queries=queries)
    paper.main(design, out, console(err=as_json), data=data, recommended=recommended, dry_run=dry_run)
    if as_json:
        say_papers(out, "mind-the-hook", not dry_run)
