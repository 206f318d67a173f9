"""The answer to why a layout was not chosen, in its one form (`planner explain --why-not`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from planner.planning.document import document
from planner.planning.plan import GroupLoss, Plan

Verdict = Literal["illegal", "unfit", "slower", "larger", "best"]


@dataclass(frozen=True, slots=True)
class BrokenRule:
    """A rule that forbids what was asked for: its id and sentence, its source with the versions it
    is from, the shipped software profiles it holds for, the values it judges, and the nearest of
    them that are legal with the other given keys."""

    id: str
    sentence: str
    source: str
    holds_for: tuple[str, ...]
    value: str
    nearest: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WhyNot:
    """Given layout keys, at their best completion, held against the plan.

    Verdicts: illegal (`rules` forbid it, each alone or, where `together`, only jointly), unfit
    (every completion exceeds memory, the best by `over_bytes` in `stage`, mostly in `term`),
    slower (by `loss_fraction` of the plan's step; `terms` are the seconds more by time term, whose
    sum is the difference of the steps; `groups` what each group takes more and where), larger
    (where the least memory is asked for: by `more_bytes` of peak), best (the plan itself).
    `nearest` are the nearest values of each given key that are legal (of what does not fit: that
    fit) with the others as given. A layout that `search:` alone forbids is illegal and has its loss
    too.
    """

    plan: Plan
    given: Mapping[str, Any]
    verdict: Verdict
    other: Plan | None = None
    rules: tuple[BrokenRule, ...] = ()
    together: bool = False
    over_bytes: float | None = None
    stage: int | None = None
    term: str | None = None
    miss: Mapping[str, Any] | None = None
    loss_fraction: float | None = None
    more_bytes: float | None = None
    terms: Mapping[str, float] = field(default_factory=dict)
    groups: Mapping[str, GroupLoss] = field(default_factory=dict)
    nearest: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def to_document(self) -> dict[str, Any]:
        """The answer as one JSON document."""
        return document(self)
