"""The order of a plan's report, and of its short form.

What is the answer, is it proven, where does each group live, where do time and memory go, what
limits each group, what else was close, and what to be careful about.
"""

from __future__ import annotations

from rich.console import Group

from planner.planning.plan import Plan
from planner.problem.scenario import Scenario, scenario_from_document
from planner.report.text.pieces import stacked, warnings_section
from planner.report.text.plan import choice, groups, head, memory, no_layout, nodes, proof, time


def plan_report(plan: Plan) -> Group:
    """The whole report of a plan, of an evaluated layout, or of why there is none."""
    scenario = _scenario(plan)
    # without a layout there is nothing but the reasons
    if plan.layout is None:
        return stacked(
            head.subject(plan, scenario),
            *no_layout.reasons(plan),
            warnings_section(plan.warnings),
        )
    return stacked(
        head.subject(plan, scenario),
        head.answer(plan, scenario),
        proof.proof(plan, scenario.search.robust),
        choice.choice(plan),
        groups.places(plan, scenario.topology),
        nodes.nodes(plan),
        time.time(plan),
        memory.fullest_stage(plan.memory),
        memory.stages(plan.memory),
        groups.traffic(plan),
        groups.swaps(plan),
        time.runners_up(plan),
        proof.layouts_left_out(plan),
        warnings_section(plan.warnings),
    )


def short_report(plan: Plan) -> Group:
    """The answer, its proof, and where each group lives: what `print(plan)` shows."""
    scenario = _scenario(plan)
    if plan.layout is None:
        return stacked(head.subject(plan, scenario), no_layout.headline(plan))
    return stacked(
        head.subject(plan, scenario),
        head.answer(plan, scenario),
        proof.proof(plan, scenario.search.robust),
        groups.places(plan, scenario.topology),
    )


def _scenario(plan: Plan) -> Scenario:
    return scenario_from_document(plan.inputs, "plan")
