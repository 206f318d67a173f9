"""Plans as launch files of training frameworks.

`export_plan(plan, target)` returns the files' texts by name; nothing is written here.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from planner.errors import ExportError, UnknownNameError, nearest_of
from planner.export.megatron import export_megatron
from planner.planfile import Plan

TARGETS = {
    "json": "the plan file itself, plan.json",
    "megatron": "arguments of Megatron-LM (megatron-core 0.19.2) as a bash array",
}
"""Target name to what it writes."""


def _plan_file(plan: Plan) -> dict[str, str]:
    return {"plan.json": json.dumps(plan.to_document(), indent=2, allow_nan=False) + "\n"}


EXPORTS: dict[str, Callable[[Plan], dict[str, str]]] = {
    "json": _plan_file,
    "megatron": export_megatron,
}


def export_plan(plan: Plan, target: str) -> dict[str, str]:
    """Files of a target, name to text.

    Raises:
        UnknownNameError: there is no such target.
        ExportError: the target cannot express the plan.
    """
    if target not in TARGETS:
        raise UnknownNameError(
            f"unknown target '{target}'", key="--target", value=target,
            allowed=", ".join(TARGETS), nearest=nearest_of(target, TARGETS),
        )  # fmt: skip
    if plan.layout is None:
        raise ExportError("there is no layout to export: the plan holds only why none was found")
    if plan.memory is not None and plan.memory.verdict == "no":
        raise ExportError(
            "the layout does not fit in memory: nothing is written; evaluate or plan one that does"
        )
    return EXPORTS[target](plan)
