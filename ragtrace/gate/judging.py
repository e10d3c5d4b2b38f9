"""A database against a policy."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from ragtrace.errors import UsageError
from ragtrace.gate import baseline as baselines
from ragtrace.gate.outcomes import Gate, Outcome
from ragtrace.gate.policy import Listed, Policy, default, read
from ragtrace.gate.rules.base import DefenseRule, Evidence
from ragtrace.store import existing
from ragtrace.store import open as open_store


def check(database: Path, policy: Policy | Path | None = None, baseline: Path | None = None) -> Gate:
    """Judges every rule of a policy; what waits in the spool is merged first.

    :param policy: a policy, or the file of one; ``None``: the default one.
    :param baseline: an earlier database, for the rule ``not_worse``.
    :raises UsageError: a policy that says what is not known, or one that does not use the baseline.
    :raises StoreError: no database, or none that can be read.
    """
    chosen = default(baseline=baseline is not None) if policy is None else policy
    rules = read(chosen) if isinstance(chosen, Path) else chosen
    if baseline is not None and not rules.has("not_worse"):
        raise UsageError(
            f"a baseline is given, but {rules.source or 'the policy'} never uses it; add [not_worse] to it"
        )
    path = existing(database)
    with ExitStack() as stack:
        db = stack.enter_context(open_store(path))
        before = None if baseline is None else stack.enter_context(baselines.opened(baseline, path, db))
        evidence = Evidence(db, before)
        outcomes = tuple(_outcome(listed, evidence, rules) for listed in rules.rules)
    return Gate(str(database), None if rules.source is None else str(rules.source), outcomes)


def _outcome(listed: Listed, evidence: Evidence, policy: Policy) -> Outcome:
    rule = listed.rule
    try:
        findings = tuple(rule.judge(evidence))
    except UsageError as error:
        where = f"{policy.source}{f', line {listed.line}' if listed.line else ''}" if policy.source else "the policy"
        raise UsageError(f"{where}, [{rule.name}]: {error}") from error
    used = [(f.reason, f.subject) for f in findings if f.kind == "excused"]
    notes = tuple(
        f"the exception for {' · '.join(filter(None, (e.defense, e.hook)))} excused nothing; take it out"
        for e in (rule.exceptions if isinstance(rule, DefenseRule) else ())
        if not any(reason == e.reason and subject.startswith(e.defense) for reason, subject in used)
    )
    about = rule.about if rule.about.endswith(".") else f"{rule.about}."
    return Outcome(rule.name, about, findings, (rule.no_data or policy.no_data) == "breach", listed.line, notes)
