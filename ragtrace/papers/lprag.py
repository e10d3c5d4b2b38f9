"""LPRAG as Mind the Hook describes it: an artefact under audit."""

from __future__ import annotations

from ragtrace.defenses.entity_substitution import EntitySubstitution


class LPRAG(EntitySubstitution):
    """LPRAG of Mind the Hook (arXiv 2608.09001, Table I): fixed names and placeholder domains, in content and response.

    "Deterministic entity-substitution simplification … without local-DP": what :class:`EntitySubstitution` does, with
    its guarantees and gaps. The scorer's placeholder names are its vocabulary, so its effect on names is not to be
    judged by NEL. LPRAG proper is :class:`~ragtrace.defenses.LocalDPEntities`.
    """

    name = "lprag"
