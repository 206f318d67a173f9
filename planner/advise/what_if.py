"""What other machines would buy: shadow prices and break-evens, each by planning anew.

Nothing here is a derivative or an estimate: every changed scenario is searched like the first, its
lowest step is proven, and a gain is the difference of two proven steps.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from planner.advise.break_even import BreakEven, fsdp_break_even
from planner.advise.changes import Keys, Replanner, Say, changed_scenario, step_of
from planner.advise.scaling import WASTED_FRACTION, Scaling, scaling_curve
from planner.advise.upgrades import Idea, ideas
from planner.errors import InputError
from planner.layouts.layout import Layout
from planner.planning.document import LayoutValue, document
from planner.planning.plan import Plan
from planner.planning.solve import chosen_scenario
from planner.problem.scenario import Scenario, ScenarioLike, load_scenario

COMPARED_KEYS = (
    "tp", "cp", "pp", "dp", "ep", "etp", "dp_shard", "vp", "mbs", "zero_stage", "recompute",
    "recompute_layers", "cp_kind", "schedule", "offload",
)  # fmt: skip
"""Layout keys whose change is part of the answer."""


@dataclass(frozen=True, slots=True)
class Upgrade:
    """One change of machine or job and the best plan under it, proven like the first.

    set: the change as --set takes it.
    step_seconds: the lowest step with it, None where nothing fits.
    gain_fraction: the share of the step that is saved.
    same_layout_seconds: what the old layout would take, None where it is illegal or too large.
    layout_changes, terms: what the gain is made of, {key: (before, after)} and {term of time:
    seconds more}.
    """

    id: str
    text: str
    set: Keys
    step_seconds: float | None
    gain_fraction: float | None
    same_layout_seconds: float | None
    layout: LayoutValue | None
    layout_changes: Mapping[str, tuple[Any, Any]]
    terms: Mapping[str, float]
    num_accelerators: int
    peak_bytes: float | None
    infeasible: str | None = None


@dataclass(frozen=True, slots=True)
class WhatIf:
    """A plan, and what it would become on other machines; without a layout, only the plan."""

    plan: Plan
    upgrades: tuple[Upgrade, ...] = ()
    break_even: BreakEven | None = None
    scaling: Scaling | None = None
    plans_made: int = 0
    cpu_seconds: float = 0.0

    def to_document(self) -> dict[str, Any]:
        """The answers as one JSON document."""
        return document(self)


def what_if(
    scenario: ScenarioLike, threshold_fraction: float = WASTED_FRACTION, say: Say | None = None
) -> WhatIf:
    """What changes of machine and job would buy, when FSDP would do, and how far it scales.

    A scenario that leaves count, precision or batch open is planned first; the rest asks about
    what was chosen. say: is called with what is planned next.

    Raises:
        InputError: the threshold is out of range.
        PlannerError: the scenario cannot be costed.
    """
    scenario = load_scenario(scenario)
    cpu = time.process_time()
    replanner = Replanner(say)
    base = replanner.best(scenario, "the scenario", reasons=True)
    if base.layout is None:
        return WhatIf(base)
    scenario = chosen_scenario(scenario, base)
    upgrades = tuple(_upgrade(scenario, base, idea, replanner) for idea in ideas(scenario))
    return WhatIf(
        plan=base,
        upgrades=upgrades,
        break_even=fsdp_break_even(scenario, base, replanner),
        scaling=scaling_curve(scenario, base, None, threshold_fraction, replanner),
        plans_made=replanner.plans_made,
        cpu_seconds=time.process_time() - cpu,
    )


def _upgrade(scenario: Scenario, base: Plan, idea: Idea, replanner: Replanner) -> Upgrade:
    if idea.impossible is not None:
        return _impossible(idea, scenario, idea.impossible)
    try:
        new = changed_scenario(scenario, idea.set)
    except InputError as error:
        return _impossible(idea, scenario, error.message)
    best = replanner.best(new, idea.text)
    if best.layout is None or best.objective_seconds is None:
        return _impossible(idea, new, "no layout fits")
    assert base.layout is not None and base.objective_seconds is not None
    same = None
    if new.num_accelerators == scenario.num_accelerators:
        same = step_of(new, base.layout)
    return Upgrade(
        id=idea.id,
        text=idea.text,
        set=idea.set,
        step_seconds=best.objective_seconds,
        gain_fraction=1.0 - best.objective_seconds / base.objective_seconds,
        same_layout_seconds=same,
        layout=best.layout,
        layout_changes=_changes(base.layout, best.layout),
        terms=_terms(base, best),
        num_accelerators=new.num_accelerators,
        peak_bytes=None if best.memory is None else best.memory.peak_bytes,
    )


def _impossible(idea: Idea, scenario: Scenario, reason: str) -> Upgrade:
    return Upgrade(
        id=idea.id,
        text=idea.text,
        set=idea.set,
        step_seconds=None,
        gain_fraction=None,
        same_layout_seconds=None,
        layout=None,
        layout_changes={},
        terms={},
        num_accelerators=scenario.num_accelerators,
        peak_bytes=None,
        infeasible=reason,
    )


def _changes(before: Layout, after: Layout) -> dict[str, tuple[Any, Any]]:
    old, new = before.to_document(), after.to_document()
    return {key: (old[key], new[key]) for key in COMPARED_KEYS if old[key] != new[key]}


def _terms(before: Plan, after: Plan) -> dict[str, float]:
    old, new = before.time or {}, after.time or {}
    return {term: new[term] - old.get(term, 0.0) for term in new}
