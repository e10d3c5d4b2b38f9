"""Controls of an attack, as arms over any traced pipeline: what would the answers be without documents, or the target?

They are defenses in form (they act at ``retrieval``), so they need no second index: leaving the target out of what an
exact index found is what the index without it would have found, if the pipeline fetches a candidate more than it
keeps (the adapters' ``oversample``); otherwise the prompt has one document less.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ragtrace.audit import Arm
from ragtrace.defense import Defense
from ragtrace.record.scope import current
from ragtrace.types import Document, Probe

if TYPE_CHECKING:
    from ragtrace.attacks.base import AdaptiveAttack, Attack


def _probe() -> Probe | None:
    scope = current()
    return None if scope is None or scope.truth is None else scope.truth.probe


def _is_target(document: Document, probe: Probe) -> bool:
    # by text too: frameworks without ids of their own have others than the corpus
    return document.id == probe.target_id or document.content == probe.target_text


class Control(Defense):
    """What takes the place of a defense in a control's arm: nobody would run an app with it."""


class NoRetrieval(Control):
    """Takes every document away: what the model says from the question and from its training alone."""

    name = "no_retrieval"

    def on_retrieval(self, query: str, documents: list[Document]) -> list[Document]:
        """Nothing."""
        return []


class WithoutTarget(Control):
    """Takes the probe's target away, if it was found: the index as it is for a non-member."""

    name = "without_target"

    def on_retrieval(self, query: str, documents: list[Document]) -> list[Document]:
        """The other documents, as they were."""
        probe = _probe()
        return documents if probe is None else [d for d in documents if not _is_target(d, probe)]


class WithTarget(Control):
    """Puts the probe's target first: the index as it is for a member that is found at once."""

    name = "with_target"

    def on_retrieval(self, query: str, documents: list[Document]) -> list[Document]:
        """The target and the other documents, as many as they were."""
        probe = _probe()
        if probe is None or probe.target_text is None:
            return documents
        found = [d for d in documents if _is_target(d, probe)] or [
            Document(probe.target_text, probe.target_id or "target")
        ]
        others = [d for d in documents if not _is_target(d, probe)]
        return [*found[:1], *others][: max(len(documents), 1)]


CONTROLS = (Arm("no_retrieval", (NoRetrieval(),)), Arm("without_target", (WithoutTarget(),)))
"""The arms to run beside every membership attack; the first one beside any whose queries are the same in every arm."""
REFERENCE = (Arm("with_target", (WithTarget(),)), Arm("without_target", (WithoutTarget(),)))
"""The two reference indexes of a difficulty-calibrated attack."""


def controls_of(attacks: Sequence[Attack | AdaptiveAttack], taken: Collection[str] = ()) -> list[Arm]:
    """The controls of these attacks, each for those that it tells something about.

    Without retrieval: every attack whose queries are the same in every arm, to tell what leaked from what the model
    knows by itself. Without the target: membership attacks. An attacker who adapts would ask other things there.

    :param taken: names of arms that are there already; a control of such a name is left out.
    """
    fixed = tuple(dict.fromkeys(getattr(a, "probed_as", a.name) for a in attacks if hasattr(a, "probes")))
    membership = tuple(dict.fromkeys(a.probed_as for a in attacks if hasattr(a, "probed_as")))
    told = zip(CONTROLS, (fixed, membership), strict=True)
    return [replace(arm, attacks=names) for arm, names in told if names and arm.name not in taken]
