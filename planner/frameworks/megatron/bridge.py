"""A plan as overrides of Megatron-Bridge's ConfigContainer, in YAML.

Megatron-Bridge ignores keys that it does not know: the names are those of its own classes.
"""

from __future__ import annotations

from typing import Any

from planner.frameworks.job import Job, coded_keys, reasons_of, refusals
from planner.frameworks.megatron.rules import CORE_REFUSALS
from planner.frameworks.megatron.stages import job_layout_text
from planner.frameworks.megatron.write import (
    dense_expert_size,
    megatron_order,
    recompute_settings,
)
from planner.frameworks.target import target
from planner.frameworks.text import commented, file_text, stamp, yaml_lines

NAME = "megatron-bridge"
FILE_NAME = "bridge-overrides.yaml"

MODULES = "model.recompute_modules"


def export_bridge(job: Job) -> dict[str, str]:
    """The overrides, by their file's name.

    Raises:
        ExportError: Megatron-Bridge cannot express the plan.
    """
    to = target(NAME)
    reasons = [*refusals(job, to, coded_keys(job)), *reasons_of(CORE_REFUSALS, job)]
    order = megatron_order(job, to, reasons)
    head = [
        *stamp(job, to),
        "NOT SET: the model (a recipe's, or AutoBridge's), data, optimizer, checkpoints; the",
        "recipe needs a CommOverlapConfig, or Megatron-Bridge cannot take comm_overlap.",
    ]
    return {FILE_NAME: file_text([*commented(head), *yaml_lines(bridge_settings(job, order))])}


def bridge_settings(job: Job, order: str) -> dict[str, Any]:
    """All settings by their dotted names."""
    to, layout, model = target(NAME), job.layout, job.scenario.model
    settings: dict[str, Any] = {
        **job.settings(
            to, "tp", "pp", "cp", "mbs", "training.global_batch_size", "training.precision",
            "training.sequence_length",
        ),
        "dataset.seq_length": job.scenario.training.sequence_length,
        **to.settings("order", order),
        **job.settings(to, "sp", "zero_stage"),
        **recompute_settings(job, to),
    }  # fmt: skip
    if MODULES in settings:  # the table writes the list as one text
        settings[MODULES] = str(settings[MODULES]).split()
    if layout.cp > 1:
        settings |= job.settings(to, "cp_kind")
    if layout.pp > 1:
        settings |= _stage_settings(job)
    if model.moe is not None:
        settings |= job.settings(to, "ep", "etp", "dispatcher")
        overlaps = job.overlaps("ep") and layout.ep > 1
        settings["comm_overlap.overlap_moe_expert_parallel_comm"] = overlaps
    expert_size = dense_expert_size(job, order)
    if expert_size is not None:
        settings |= to.settings("etp", expert_size)
    if layout.zero_stage and layout.dp_replicate > 1:
        settings |= job.settings(to, "dp_replicate")
    return settings | _overlap_settings(job)


def _stage_settings(job: Job) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    if job.layout.vp > 1:
        settings |= job.settings(target(NAME), "vp")
        settings["comm_overlap.overlap_p2p_comm"] = job.overlaps("pp")
        settings["comm_overlap.batch_p2p_comm"] = not job.overlaps("pp")
    text = job_layout_text(job)
    if text is not None:
        settings["model.pipeline_model_parallel_layout"] = text
    return settings


def _overlap_settings(job: Job) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for section in ("ddp", "comm_overlap"):  # the second overrules the first
        settings[f"{section}.overlap_grad_reduce"] = job.overlaps("dp")
        settings[f"{section}.overlap_param_gather"] = (
            job.overlaps("dp") and job.layout.zero_stage > 0
        )
    settings["comm_overlap.tp_comm_overlap"] = job.overlaps("tp") and job.layout.tp > 1
    return settings
