"""What a check found: a rule's findings, and whether they stop a release."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

Kind = Literal["breach", "no data", "excused"]
Status = Literal["pass", "breach", "no data"]


@dataclass(frozen=True)
class Finding:
    """One thing that a rule objects to, or could not judge.

    :param subject: what it is about, as ``dp_r · response``; the same in every run, so that a code host knows it again.
    :param file: where the source of the defense stands, with ``line``; ``None`` where no inventory says.
    :param reason: why the policy excuses it.
    """

    subject: str
    message: str
    kind: Kind = "breach"
    file: str | None = None
    line: int | None = None
    reason: str | None = None

    @property
    def where(self) -> str:
        """File and line, for a reader."""
        return "" if self.file is None else self.file if self.line is None else f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Outcome:
    """What became of one rule of the policy.

    :param about: what the rule asks for, in a sentence.
    :param strict: whether what cannot be judged counts as a breach.
    :param line: where the rule stands in the policy file.
    :param notes: what a reader of the policy should know, as an exception that excused nothing.
    """

    rule: str
    about: str
    findings: tuple[Finding, ...] = ()
    strict: bool = True
    line: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def status(self) -> Status:
        """``no data`` where nothing is wrong, but something could not be judged, and the policy lets that pass."""
        if any(self.stops(f) for f in self.findings):
            return "breach"
        return "no data" if any(f.kind == "no data" for f in self.findings) else "pass"

    def stops(self, finding: Finding) -> bool:
        """Whether this finding is a breach."""
        return finding.kind == "breach" or (self.strict and finding.kind == "no data")


@dataclass(frozen=True)
class Gate:
    """All outcomes of a policy over a database."""

    database: str
    policy: str | None
    outcomes: Sequence[Outcome]

    @property
    def passed(self) -> bool:
        """Whether no rule is breached."""
        return not self.breached

    @property
    def breached(self) -> list[Outcome]:
        """The rules that are."""
        return [o for o in self.outcomes if o.status == "breach"]

    @property
    def summary(self) -> str:
        """One line: how many rules, and how many are breached."""
        unjudged = sum(o.status == "no data" for o in self.outcomes)
        said = f"{len(self.breached)} of {len(self.outcomes)} rules breached"
        return said + (f", {unjudged} not judged" if unjudged else "")

    def to_json(self) -> dict[str, Any]:
        """The object that ``ragtrace check --json`` prints."""
        return {
            "passed": self.passed,
            "database": self.database,
            "policy": self.policy,
            "rules": [
                {
                    "rule": o.rule, "about": o.about, "status": o.status, "line": o.line, "notes": list(o.notes),
                    "findings": [asdict(f) for f in o.findings],
                }
                for o in self.outcomes
            ],
        }  # fmt: skip
