"""Policies: what is misspelt is told with the right word; the template is the default and says all there is."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pytest

from ragtrace.errors import InputError, UsageError
from ragtrace.gate.outcomes import Finding
from ragtrace.gate.policy import default, made, read, template, write_template
from ragtrace.gate.rules import load
from ragtrace.gate.rules.base import Rule


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[defences_act]", "there is no rule 'defences_act'; did you mean 'defenses_act'?"),
        ("[xyz]", "there is no rule 'xyz'; expected one of defenses_act, losses, metric_bound"),
        ("no_dta = 'pass'", "there is no rule 'no_dta'; did you mean 'no_data'?"),
        ("no_data = 'green'\n[losses]", "no_data is 'green'; expected \"breach\" or \"pass\""),
        ("[losses]\nmots = 1", r"[losses] has no key 'mots'; did you mean 'most'?"),
        ("[losses]\nno_data = 'pas'", "[losses]: no_data is 'pas'; did you mean 'pass'?"),
        ("[losses]\nmost = '1'", "[losses]: most is '1'; expected a whole number"),
        ("[losses]\nmost = true", "[losses]: most is True; expected a whole number"),
        ("[no_canary]\nfamilies = 'email'", "families is 'email'; expected a list"),
        ("[no_canary]\nfamilies = ['emial']", "canary family 'emial' is not known; did you mean 'email'?"),
        ("[no_canary]\narms = [1]", "arms[0] is 1; expected a text"),
        ("[no_canary]\nexceptions = []", "[no_canary] has no key 'exceptions'"),
        ("[defenses_act]\nallow = ['activ']", "verdict 'activ' is not known; did you mean 'active'?"),
        ("[[defenses_act.exceptions]]\ndefense = 'x'", "[defenses_act]: exceptions[0] has no reason"),
        ("[[defenses_act.exceptions]]\ndefense = 'x'\nreason = ' '", "the exception for 'x' has an empty reason"),
        ("[[metric_bound]]\nupper_bound = 1", "[metric_bound] has no metric; expected `metric = …`"),
        ("[[metric_bound]]\nmetric = 'x'", "metric 'x' has no bound; say upper_bound = … or lower_bound = …"),
        ("[[metric_bound]]\nmetric = 'x'\nupper_bound = nan", "upper_bound is nan; expected a finite number"),
        ("[[metric_bound]]\nmetric='x'\nupper_bound=1\njudge_by='intervall'", "did you mean 'interval'?"),
        ("[[metric_bound]]\nmetric='x'\nupper_bound=1\nreadings=['indirct']", "did you mean 'indirect'?"),
        ("[probes]\nanswered = 95", "answered is 95; expected a share in [0, 1]"),
        ("losses = 3", "[losses] is 3; expected a table of keys"),
        ("", "has no rule; expected some of [defenses_act]"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_the_fix(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(text)
    with pytest.raises(UsageError, match=re.escape(said)) as error:
        read(file)
    assert str(file) in str(error.value)


@pytest.mark.parametrize("content", [b"[losses", b"\xff\xfe", None])
def test_what_is_no_policy_file(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "policy.toml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(InputError, match="ragtrace check --init"):
        read(file)


def test_rules_know_their_line(tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    bound = "[[metric_bound]]\nmetric = 'x'\nupper_bound = 1\n"
    file.write_text(f"no_data = 'pass'\n\n[losses]\n{bound}\n{bound}")
    policy = read(file)
    assert [(r.rule.name, r.line) for r in policy.rules] == [("losses", 3), ("metric_bound", 4), ("metric_bound", 8)]
    assert policy.no_data == "pass" and policy.source == file


def test_the_template_is_the_default_and_is_never_written_over_a_policy(tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    write_template(file)
    assert [r.rule for r in read(file).rules] == [r.rule for r in default().rules]
    assert default(baseline=True).has("not_worse") and not default().has("not_worse")
    file.write_text("mine")
    with pytest.raises(UsageError, match="is there already"):
        write_template(file)
    assert file.read_text() == "mine"
    with pytest.raises(UsageError, match="No such file or directory; choose a file in a folder"):
        write_template(tmp_path / "no" / "policy.toml")


def test_everything_in_the_template_is_valid_and_it_names_every_rule() -> None:
    from ragtrace.metrics import load as metrics

    lines = [re.sub(r"^# (?=\[|\w+ = )", "", line) for line in template().splitlines()]
    told = tomllib.loads("\n".join(lines))
    policy = made(told)
    assert {r.rule.name for r in policy.rules} == set(load())
    assert told["metric_bound"][0]["metric"] in metrics()
    assert told["defenses_act"]["exceptions"][0]["reason"] and told["no_canary"]["families"]


def test_every_rule_and_key_is_documented() -> None:
    for name, rule in load().items():
        assert rule.name == name and rule.__doc__
        documented = re.findall(r":param (\w+):", rule.__doc__)
        assert documented == [f.name for f in fields(rule) if f.name not in ("no_data", "exceptions")], name


def test_a_rule_of_somebody_else_is_one_class(monkeypatch: Any, bench: Any) -> None:
    @dataclass(frozen=True, kw_only=True)
    class Quiet(Rule):
        """Nothing is recorded."""

        name = "quiet"
        most: int = 0

        def judge(self, evidence: Any) -> Any:
            (row,) = evidence.rows("SELECT count(*) AS n FROM spans")
            if row["n"] > self.most:
                yield Finding("spans", f"{row['n']} spans")

    from ragtrace.gate import check, policy

    known = load() | {"quiet": Quiet}
    monkeypatch.setattr(policy, "load", lambda: known)
    with bench.span("x"):
        pass
    bench.open().close()
    gate = check(bench.database, made({"quiet": {}}))
    assert [f.message for f in gate.outcomes[0].findings] == ["1 spans"]
    assert check(bench.database, made({"quiet": {"most": 1}})).passed
