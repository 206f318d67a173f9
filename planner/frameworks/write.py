"""Jobs as launch files of training frameworks: texts by file name; nothing is written here."""

from __future__ import annotations

import json
from collections.abc import Callable

from planner.errors import UnknownNameError, nearest_of
from planner.frameworks.accelerate import export_accelerate
from planner.frameworks.deepspeed import export_deepspeed
from planner.frameworks.job import Job
from planner.frameworks.launchers.rank_table import export_rank_table
from planner.frameworks.launchers.slurm import export_slurm
from planner.frameworks.launchers.torchrun import export_torchrun
from planner.frameworks.megatron.bridge import export_bridge
from planner.frameworks.megatron.write import export_megatron
from planner.frameworks.torchtitan.write import export_torchtitan, export_torchtitan_toml


def _plan_file(job: Job) -> dict[str, str]:
    return {"plan.json": json.dumps(job.document, indent=2, allow_nan=False) + "\n"}


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


def write_launch_files(job: Job, target: str) -> dict[str, str]:
    """Files of a target, name to text.

    Raises:
        UnknownNameError: there is no such target.
        ExportError: the target cannot express the job.
    """
    if target not in EXPORTS:
        raise UnknownNameError(
            f"unknown target '{target}'", key="--target", value=target,
            allowed=", ".join(EXPORTS), nearest=nearest_of(target, EXPORTS),
        )  # fmt: skip
    return EXPORTS[target](job)
