"""A plan as DeepSpeed's JSON configuration.

JSON has no remarks: the stamp is its key `planner`, which DeepSpeed leaves alone.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from planner.errors import ExportError
from planner.frameworks.job import Job, coded_keys, order_refusals, refusals, stamp
from planner.frameworks.target import Settings, target
from planner.layouts.stage_split import layers_by_stage

NAME = "deepspeed"
FILE_NAME = "ds_config.json"

KEYS = ("mbs", "num_microbatches", "training.global_batch_size", "zero_stage", "recompute")


def export_deepspeed(job: Job) -> dict[str, str]:
    """The configuration, by its name.

    Raises:
        ExportError: DeepSpeed cannot express the plan.
    """
    to, layout = target(NAME), job.layout
    reasons = [*refusals(job, to, coded_keys(job)), *order_refusals(job, to)]
    if layout.tp > 1 and job.overlaps("tp"):
        reasons.append("DeepSpeed overlaps no tensor-parallel traffic; expressible: no tp in it")
    if layout.pp > 1 and layout.stage_layers != _uniform(job):
        reasons.append(
            "DeepSpeed splits pipelines by the number of modules, not as stage_layers says; "
            "expressible: the default split"
        )
    if reasons:
        raise ExportError(*reasons)
    document: dict[str, Any] = {"planner": stamp(job, to) + _left(job)}
    for name, value in deepspeed_settings(job).items():
        *parts, key = name.split(".")
        place = document
        for part in parts:
            place = place.setdefault(part, {})
        place[key] = value
    return {FILE_NAME: json.dumps(document, indent=2, ensure_ascii=False) + "\n"}


def deepspeed_settings(job: Job) -> Settings:
    """All settings by their dotted names."""
    to, layout = target(NAME), job.layout
    found = job.settings(to, *KEYS, "training.precision")
    found["zero_optimization.overlap_comm"] = job.overlaps("dp")
    if layout.tp > 1:
        found |= job.settings(to, "tp")
    if layout.pp > 1:
        found |= job.settings(to, "pp")
        found["pipeline.partition"] = "uniform"
    return found


def _left(job: Job) -> list[str]:
    layout = job.layout
    left = ["NOT SET: optimizer, data, and what the program builds itself:"]
    left += [f"sequences of {job.scenario.training.sequence_length} tokens"]
    if layout.pp > 1:
        left.append(f"PipelineModule(num_stages={layout.pp}, partition_method='uniform')")
    if layout.pp == 1 and layout.recompute == "full":
        left.append("activation checkpointing of every layer")
    return left


def _uniform(job: Job) -> tuple[int, ...] | None:
    model, software = job.scenario.model, job.scenario.software
    if job.layout.stage_layers is None:
        return None
    plain = replace(job.layout, stage_layers=None)
    return tuple(layers_by_stage(model.num_layers, plain, software.reserved_layers(model)))
