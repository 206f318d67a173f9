"""Changes of a scenario or a layout, tried: evaluated as they are, or planned anew."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from planner.advise.baseline import Baseline
from planner.cost.context import CostContext
from planner.cost.memory import VERDICTS
from planner.errors import IllegalLayoutError, InputError, PlannerError
from planner.layouts.layout import Layout
from planner.planning.assess import memory_report
from planner.planning.plan import Plan
from planner.planning.solve import evaluate, plan
from planner.problem.scenario import Scenario, scenario_from_document, scenario_to_document
from planner.search.space.given import given_layout

Keys = Mapping[str, str | int | float]
"""Dotted keys of a scenario, as `--set` takes them, and their new values."""

KEPT_LAYOUT_KEYS = (
    "tp", "cp", "pp", "dp_shard", "dp_replicate", "vp", "mbs", "zero_stage", "recompute",
    "recompute_layers", "cp_kind", "cp_a2a", "dispatcher", "ep", "etp", "overlap",
    "offload",
)  # fmt: skip
"""Layout keys that a changed layout keeps; the others follow from them."""


def changed_scenario(scenario: Scenario, keys: Keys) -> Scenario:
    """The scenario with dotted keys of its document set.

    Raises:
        InputError: the changed scenario is not valid.
    """
    if not keys:
        return scenario
    changed: Any = scenario_to_document(scenario)
    for key, value in keys.items():
        *path, last = key.split(".")
        owner = changed
        for name in path:
            owner = owner[int(name)] if isinstance(owner, list) else owner[name]
        owner[last] = value
    return scenario_from_document(changed, "the changed scenario")


# ---------------------------------------------------------------- evaluated


@dataclass(frozen=True, slots=True)
class Change:
    """Keys of the scenario and of the layout that become others.

    Ranks stay where they are unless a degree changes or `replaced` wants the best place.
    `text` says what was chosen where several changes serve one end.
    """

    set: Keys = field(default_factory=dict)
    layout: Mapping[str, Any] = field(default_factory=dict)
    replaced: bool = False
    text: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Seconds of a step with the change, or why it cannot be made."""

    step_seconds: float | None
    infeasible: str | None = None


def try_change(base: Baseline, change: Change, limited: bool = True) -> Outcome:
    """What the model predicts with a change made.

    limited: within the memory there is and the scenario's `search:` restrictions.
    """
    if limited and (reason := _restricted(base, change)):
        return Outcome(None, reason)
    try:
        scenario = changed_scenario(base.scenario, change.set)
        ctx = CostContext.of(scenario)
        layout = given_layout(ctx, _changed_layout(base, change.layout))
    except IllegalLayoutError as error:
        return Outcome(None, f"{error.message} (rule {error.rule})")
    except InputError as error:
        return Outcome(None, error.message)
    if limited and (reason := _too_large(base, ctx, layout)):
        return Outcome(None, reason)
    if _degrees(layout) == _degrees(base.layout) and not change.replaced:
        return Outcome(base.step(ctx, layout))
    return Outcome(evaluate(scenario, layout).step_seconds)


def _degrees(layout: Layout) -> tuple[int, ...]:
    return (*layout.degrees(), layout.ep, layout.etp)


def _restricted(base: Baseline, change: Change) -> str | None:
    """Why the scenario's search does not have the changed layout, if it has not."""
    for key, value in change.layout.items():
        allowed = getattr(base.scenario.search, key, None)
        if allowed is not None and value not in allowed:
            return f"the scenario's search: allows {key} {', '.join(map(str, allowed))}"
    return None


def _too_large(base: Baseline, ctx: CostContext, layout: Layout) -> str | None:
    """Why a layout does not fit: its verdict is worse than the search's and the plan's own."""
    memory = memory_report(ctx, layout)
    accepted: list[str] = [base.scenario.search.memory]
    if base.plan.memory is not None:
        accepted.append(base.plan.memory.verdict)
    if VERDICTS.index(memory.verdict) <= max(map(VERDICTS.index, accepted)):
        return None
    fragile = "fragile: " if memory.verdict == "fragile" else ""
    return (
        f"{fragile}it needs {memory.peak_bytes / 1e9:.1f} of {memory.capacity_bytes / 1e9:.1f} GB"
    )


def _changed_layout(base: Baseline, keys: Mapping[str, Any]) -> dict[str, Any]:
    """The layout's keys with some changed; what follows from them is left to follow."""
    layout = base.layout
    values = {key: getattr(layout, key) for key in KEPT_LAYOUT_KEYS} | dict(keys)
    if "recompute" in keys:  # a count of layers belongs to the recompute it was chosen for
        values["recompute_layers"] = keys.get("recompute_layers")
    if layout.schedule not in ("1f1b", "interleaved") and values["pp"] > 1:
        values.setdefault("schedule", layout.schedule)
    if base.ctx.software.sequence_parallel == "optional" and "sp" not in keys:
        values["sp"] = layout.sp and values["tp"] > 1
    split = layout.stage_layers
    if split is not None and values["pp"] == layout.pp and "stage_layers" not in keys:
        values["stage_layers"] = split
    return values


# ---------------------------------------------------------------- planned anew

Say = Callable[[str], None]


@dataclass
class Replanner:
    """Plans changed scenarios, one layout each; tells `say` before each, and counts them."""

    say: Say | None = None
    plans_made: int = 0

    def best(self, scenario: Scenario, text: str, reasons: bool = False) -> Plan:
        """The best plan of a scenario, which `text` names; where nothing fits, with `reasons`."""
        if self.say is not None:
            self.say(text)
        self.plans_made += 1
        return plan(scenario, 1, reasons=reasons)


def step_of(scenario: Scenario, layout: Layout) -> float | None:
    """The lowest step of a layout in a scenario, in seconds; None where it is illegal or too large.

    Where the search is robust, the upper ends of the prediction intervals count instead.
    """
    exact = scenario.replace(search=scenario.search.replace(tie_fraction=0.0))
    try:
        evaluated = evaluate(exact, layout)
    except PlannerError:
        return None
    memory, robust = evaluated.memory, scenario.search.robust
    fitting = ("fits", "fragile") if scenario.search.memory == "fragile" else ("fits",)
    if memory is None or memory.verdict not in fitting:
        return None
    if robust and (memory.peak_high_bytes or 0.0) > memory.capacity_bytes:
        return None
    return evaluated.step_seconds_high if robust else evaluated.step_seconds
