"""A plan exported as it is, or the best plan of its scenario that the target can express.

Where a target cannot express a plan, the scenario is planned again under the target's software
profile with its search restricted to what the target can say, for each set of rank orders; of the
best layouts the first is taken that the target writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from planner.errors import ExportError, InputError, PlannerError
from planner.frameworks.target import Target, target
from planner.inputs.values import load
from planner.planning.export import export_plan
from planner.planning.plan import Plan
from planner.planning.solve import chosen_scenario, evaluate, plan
from planner.problem.scenario import Scenario, scenario_from_document
from planner.problem.software import Software

SEARCHED = ("zero_stage", "cp_kind", "dispatcher", "recompute", "sp")
"""Keys of a target's codes that the search chooses."""

TRIED = 12
"""Best layouts of the restricted search that are tried, one after another."""


@dataclass(frozen=True, slots=True)
class Expressible:
    """The best plan that a target can express, its files, and what it loses.

    loss_fraction: of the given plan's predicted step; negative where it is faster.
    """

    plan: Plan
    files: Mapping[str, str]
    loss_fraction: float


def export(plan_: Plan, target_name: str, resolve: bool = False) -> dict[str, str]:
    """A plan as launch files of a target, name to text; nothing is written to disk.

    resolve: if the target cannot express the plan, the files of the best one it can, with what
    that loses in their heads and the plan itself in plan.json.

    Raises:
        UnknownNameError: there is no such target.
        ExportError: the target cannot express the plan; says the best one it can.
    """
    try:
        return export_plan(plan_, target_name)
    except ExportError as refused:
        if plan_.layout is None or not refused.reasons:
            raise
        best = best_expressible(plan_, target_name, refused.reasons)
        if best is None:
            raise ExportError(
                *refused.reasons, f"no plan of this scenario is expressible in {target_name}"
            ) from None
        if resolve:
            files = dict(best.files)
            return files | export_plan(best.plan, "json")
        raise ExportError(*refused.reasons, _offer(best)) from None


def best_expressible(
    plan_: Plan, target_name: str, reasons: Sequence[str] = ()
) -> Expressible | None:
    """The best plan under a target's rules and software profile that it can express, or None."""
    to = target(target_name)
    scenario = scenario_from_document(plan_.inputs, "plan")
    candidates = [
        candidate
        for orders in _order_sets(to)
        if (candidate := _expressed(_restricted(scenario, to, orders), plan_, to, reasons))
    ]
    return min(candidates, key=lambda candidate: candidate.plan.step_seconds or 0.0, default=None)


def _order_sets(to: Target) -> list[Mapping[str, Any]]:
    """All of a target's orders, and each by itself, for layouts that only some can place."""
    return [to.orders, *({name: axes} for name, axes in to.orders.items() if len(to.orders) > 1)]


def _restricted(scenario: Scenario, to: Target, orders: Mapping[str, Any]) -> Scenario:
    """The scenario under the target's software, restricted to what the target can say."""
    software = scenario.software
    if to.software and not to.takes(software):
        software = load(to.software[0], "software", Software)
    if orders:
        software = software.replace(orders=dict(orders))
    changes: dict[str, Any] = {"orders": "framework"}
    allowed: dict[str, Sequence[Any]] = dict(to.limits)
    allowed |= {key: to.values(key) for key in SEARCHED if key in to.codes}
    for key, values in allowed.items():
        typed = [_typed(key, value) for value in values]
        offered = {
            "zero_stage": software.zero_stages, "recompute": software.recompute,
            "dispatcher": software.dispatchers,
        }.get(key)  # fmt: skip
        kept = getattr(scenario.search, key) or offered
        if key == "dispatcher" and not software.dispatchers:
            continue
        changes[key] = tuple(v for v in typed if kept is None or v in kept) or tuple(typed)
    return scenario.replace(software=software, search=scenario.search.replace(**changes))


def _typed(key: str, value: Any) -> Any:
    """A value of a target's codes, which are text, as the search has it."""
    if key == "sp":
        return value == "true"
    return int(value) if key == "zero_stage" else value


def _expressed(
    scenario: Scenario, given: Plan, to: Target, reasons: Sequence[str]
) -> Expressible | None:
    """The best plan of a restricted scenario that the target writes."""
    try:
        best = plan(scenario, top_k=TRIED)
    except PlannerError:
        return None
    if best.layout is None:
        return None
    scenario = chosen_scenario(scenario, best)
    candidates = [best.layout, *(runner.layout for runner in best.runners_up)]
    for number, layout in enumerate(candidates):
        try:
            candidate = best if number == 0 else evaluate(scenario, layout)
            loss = (candidate.step_seconds or 0.0) / (given.step_seconds or 1.0) - 1.0
            files = export_plan(candidate, to.name, _notes(loss, reasons))
            return Expressible(candidate, files, loss)
        except (ExportError, InputError):
            continue
    return None


def _notes(loss: float, reasons: Sequence[str]) -> list[str]:
    return [
        f"not the plan given but the best that this target expresses: predicted {_words(loss)}",
        *(f"because: {why}" for why in reasons),
    ]


def _words(loss: float) -> str:
    return f"{abs(loss):.1%} {'slower' if loss >= 0 else 'faster'} than the one given"


def _offer(best: Expressible) -> str:
    assert best.plan.layout is not None
    label = best.plan.layout.label()
    return (
        f"the best expressible plan is {label} in {best.plan.step_seconds:.4g} s, "
        f"{_words(best.loss_fraction)}: --resolve writes it"
    )
