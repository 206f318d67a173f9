"""Plans as launch files of training frameworks.

`export_plan(plan, target)` returns the files' texts by name; nothing is written here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable

from planner.answers.plan import Plan
from planner.errors import UnknownNameError, nearest_of
from planner.export.accelerate import export_accelerate
from planner.export.bridge import export_bridge
from planner.export.deepspeed import export_deepspeed
from planner.export.job import Job
from planner.export.megatron import export_megatron
from planner.export.rank_table import export_rank_table
from planner.export.slurm import export_slurm
from planner.export.torchrun import export_torchrun
from planner.export.torchtitan import export_torchtitan, export_torchtitan_toml


def _plan_file(job: Job) -> dict[str, str]:
    return {"plan.json": json.dumps(job.plan.to_document(), indent=2, allow_nan=False) + "\n"}


EXPORTS: dict[str, Callable[[Job], dict[str, str]]] = {
    "megatron": export_megatron,
    "megatron-bridge": export_bridge,
    "torchtitan": export_torchtitan,
    "deepspeed": export_deepspeed,
    "accelerate": export_accelerate,
    "slurm": export_slurm,
    "torchrun": export_torchrun,
    "rankfile": export_rank_table,
    "torchtitan-toml": export_torchtitan_toml,
    "json": _plan_file,
}
"""Target name → what writes it, most used first."""


def export_plan(plan: Plan, target: str, notes: Iterable[str] = ()) -> dict[str, str]:
    """Files of a target, name to text; `notes` are said in their heads.

    Raises:
        UnknownNameError: there is no such target.
        ExportError: the target cannot express the plan.
    """
    if target not in EXPORTS:
        raise UnknownNameError(
            f"unknown target '{target}'", key="--target", value=target,
            allowed=", ".join(EXPORTS), nearest=nearest_of(target, EXPORTS),
        )  # fmt: skip
    return EXPORTS[target](Job.of(plan, notes))
