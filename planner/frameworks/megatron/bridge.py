"""A plan as overrides of Megatron-Bridge's ConfigContainer, in YAML.

Megatron-Bridge leaves keys alone that it does not know: the names are those of its own classes.
"""

from __future__ import annotations

import json
from typing import Any

from planner.errors import ExportError
from planner.frameworks.job import (
    Job,
    coded_keys,
    commented,
    order_name,
    order_refusals,
    refusals,
    stamp,
)
from planner.frameworks.megatron.write import (
    chunks_of,
    core_refusals,
    megatron_order_refusals,
    pipeline_layout,
    recompute_settings,
)
from planner.frameworks.target import target

NAME = "megatron-bridge"
FILE_NAME = "bridge-overrides.yaml"

MODULES = "model.recompute_modules"


def export_bridge(job: Job) -> dict[str, str]:
    """The overrides, by their file's name.

    Raises:
        ExportError: Megatron-Bridge cannot express the plan.
    """
    to = target(NAME)
    order = order_name(job.rank_order, to)
    reasons = [
        *refusals(job, to, coded_keys(job)),
        *core_refusals(job),
        *megatron_order_refusals(job, order),
        *order_refusals(job, to),
    ]
    if reasons or order is None:
        raise ExportError(*reasons)
    lines = commented(
        [
            *stamp(job, to),
            "NOT SET: the model (a recipe's, or AutoBridge's), data, optimizer, checkpoints; the",
            "recipe needs a CommOverlapConfig, or Megatron-Bridge cannot take comm_overlap.",
        ]
    )
    tables: dict[str, dict[str, Any]] = {"": {}}
    for name, value in bridge_settings(job, order).items():
        table, _, key = name.rpartition(".")
        tables.setdefault(table, {})[key] = value
    for table, values in tables.items():
        lines += [f"{table}:"] if table else []
        lines += [f"{'  ' if table else ''}{key}: {json.dumps(v)}" for key, v in values.items()]
    return {FILE_NAME: "\n".join([*lines, ""])}


def bridge_settings(job: Job, order: str) -> dict[str, Any]:
    """All settings by their dotted names."""
    to, layout, model = target(NAME), job.layout, job.scenario.model
    keys = ("tp", "pp", "cp", "mbs", "training.global_batch_size", "training.precision")
    found: dict[str, Any] = dict(job.settings(to, *keys, "training.sequence_length"))
    found["dataset.seq_length"] = job.scenario.training.sequence_length
    found |= to.settings("order", order) | job.settings(to, "sp", "zero_stage")
    found |= recompute_settings(job, to)
    if MODULES in found:
        found[MODULES] = str(found[MODULES]).split()
    if layout.cp > 1:
        found |= job.settings(to, "cp_kind")
    if layout.pp > 1:
        found |= _stages(job)
    if model.moe is not None:
        found |= job.settings(to, "ep", "etp", "dispatcher")
        exchanges = job.overlaps("ep") and layout.ep > 1
        found["comm_overlap.overlap_moe_expert_parallel_comm"] = exchanges
    elif order != "tp-cp-dp-pp" and layout.cp > 1:
        # experts' ranks are counted for dense models too, as in planner.frameworks.megatron.write
        found["model.expert_tensor_parallel_size"] = layout.tp * layout.cp
    if layout.zero_stage and layout.dp_replicate > 1:
        found |= job.settings(to, "dp_replicate")
    gathers = job.overlaps("dp") and layout.zero_stage > 0
    for section in ("ddp", "comm_overlap"):  # the second overrules the first
        found[f"{section}.overlap_grad_reduce"] = job.overlaps("dp")
        found[f"{section}.overlap_param_gather"] = gathers
    found["comm_overlap.tp_comm_overlap"] = job.overlaps("tp") and layout.tp > 1
    return found


def _stages(job: Job) -> dict[str, Any]:
    chunks, layout = chunks_of(job), job.layout
    assert chunks is not None
    predictions = job.scenario.model.mtp_layers
    found: dict[str, Any] = {}
    if layout.vp > 1:
        found["model.virtual_pipeline_model_parallel_size"] = layout.vp
        found["comm_overlap.overlap_p2p_comm"] = job.overlaps("pp")
        found["comm_overlap.batch_p2p_comm"] = not job.overlaps("pp")
    if len(set(chunks)) > 1 or predictions:
        found["model.pipeline_model_parallel_layout"] = pipeline_layout(chunks, predictions)
    return found
