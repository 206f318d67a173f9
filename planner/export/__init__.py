"""Plans as launch files of training frameworks.

`export_plan(plan, target)` returns the files' texts by name; nothing is written here.
"""

from __future__ import annotations

from planner.errors import UnknownNameError, nearest_of
from planner.export.megatron import export_megatron
from planner.planfile import Plan

TARGETS = {"megatron": "arguments of Megatron-LM (megatron-core 0.19.2) as a bash array"}
"""Target name to what it writes."""


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
    return export_megatron(plan)
