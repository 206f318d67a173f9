"""A plan as launch files."""

from __future__ import annotations

from collections.abc import Iterable

from planner.errors import ExportError
from planner.frameworks.job import Job
from planner.frameworks.write import write_launch_files
from planner.planning.plan import Plan
from planner.problem.scenario import scenario_from_document


def launch_job(plan: Plan, notes: Iterable[str] = ()) -> Job:
    """The job that a plan launches; `notes` stand in the head of every file.

    Raises:
        ExportError: the plan has no layout, or one that does not fit.
    """
    if plan.layout is None or plan.rank_order is None:
        raise ExportError(f"the plan holds no layout (status {plan.status}): nothing to export")
    if plan.memory is not None and plan.memory.verdict == "no":
        raise ExportError(
            "the layout does not fit in memory: nothing is written; evaluate or plan one that does"
        )
    return Job(
        scenario=scenario_from_document(plan.inputs, "plan"),
        layout=plan.layout,
        rank_order=plan.rank_order,
        fill=plan.fill or {},
        node_runs=None if plan.nodes is None else tuple(plan.nodes.ranks),
        inputs_sha256=plan.inputs_sha256,
        step_seconds=plan.step_seconds,
        mfu=plan.mfu,
        document=plan.to_document(),
        notes=tuple(notes),
    )


def export_plan(plan: Plan, target: str, notes: Iterable[str] = ()) -> dict[str, str]:
    """Files of a target, name to text; `notes` stand in their heads.

    Raises:
        UnknownNameError: there is no such target.
        ExportError: the target cannot express the plan.
    """
    return write_launch_files(launch_job(plan, notes), target)
