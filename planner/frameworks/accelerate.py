"""A plan as a configuration file of `accelerate launch`: FSDP2 with its parallelism config."""

from __future__ import annotations

import json
from typing import Any

from planner.errors import ExportError
from planner.frameworks.job import Job, coded_keys, commented, order_refusals, refusals, stamp
from planner.frameworks.rank_map import hosts
from planner.frameworks.target import Settings, target

NAME = "accelerate"
FILE_NAME = "accelerate.yaml"


def export_accelerate(job: Job) -> dict[str, str]:
    """The configuration, by its name.

    Raises:
        ExportError: accelerate cannot express the plan.
    """
    to, layout = target(NAME), job.layout
    reasons = [*refusals(job, to, coded_keys(job)), *order_refusals(job, to)]
    if layout.dp_replicate > 1 and layout.dp_shard == 1:
        reasons.append(
            "accelerate replicates only what it shards; expressible: dp_shard > 1, or "
            "dp_replicate=1"
        )
    if layout.tp > 1 and job.overlaps("tp"):
        reasons.append("accelerate overlaps no tensor-parallel traffic; expressible: no tp in it")
    if layout.dp_shard * layout.cp > 1 and not job.overlaps("dp"):
        reasons.append("FSDP2 always overlaps its collectives; expressible: overlap with dp")
    if reasons:
        raise ExportError(*reasons)
    tables: dict[str, dict[str, Any]] = {"": {}}
    for name, value in accelerate_settings(job).items():
        table, _, key = name.rpartition(".")
        tables.setdefault(table, {})[key] = value
    lines = commented(
        [
            *stamp(job, to),
            f"use, on each host: accelerate launch --config_file {FILE_NAME} --machine_rank "
            "<its number from 0>",
            "--main_process_ip <host 0> --main_process_port <port> train.py",
            f"NOT SET, the program's own: micro-batches of {layout.mbs}, "
            f"{layout.num_microbatches} of them accumulated,",
            f"sequences of {job.scenario.training.sequence_length} tokens, optimizer, data",
        ]
    )
    for table, values in tables.items():
        lines += [f"{table}:"] if table else []
        lines += [f"{'  ' if table else ''}{key}: {json.dumps(v)}" for key, v in values.items()]
    return {FILE_NAME: "\n".join([*lines, ""])}


def accelerate_settings(job: Job) -> Settings:
    """All settings by their dotted names."""
    to, layout, where = target(NAME), job.layout, hosts(job)
    found: Settings = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": "FSDP",
        "num_machines": where.number,
        "num_processes": job.scenario.num_accelerators,
        "rdzv_backend": "static",
        "fsdp_config.fsdp_version": 2,
        "fsdp_config.fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "fsdp_config.fsdp_state_dict_type": "SHARDED_STATE_DICT",
    }
    found |= job.settings(to, "training.precision", "zero_stage", "recompute")
    found |= job.settings(to, "tp", "cp", "dp_shard", "dp_replicate")
    if layout.cp > 1:
        found |= job.settings(to, "cp_kind")
    return found
