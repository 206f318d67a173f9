"""accelerate: a plan as a configuration of `accelerate launch`, and a configuration read.

FSDP2 with accelerate's parallelism config. Batches, sequences and the model are the training
program's.
"""

from __future__ import annotations

from typing import Any

from planner.frameworks.job import (
    Job,
    Refusal,
    coded_keys,
    order_refusals,
    reasons_of,
    refusals,
    require_expressible,
)
from planner.frameworks.launchers.hosts import hosts_of
from planner.frameworks.script import LEFT_TO_PROGRAM, Interpretation, LaunchScript
from planner.frameworks.target import Settings, target
from planner.frameworks.text import commented, file_text, stamp, yaml_lines
from planner.problem.scenario import Scenario

NAME = "accelerate"
FILE_NAME = "accelerate.yaml"

DISTRIBUTED_TYPE = "distributed_type"

REFUSALS = (
    Refusal(
        "replicates-what-is-sharded",
        "accelerate replicates only what it shards; expressible: dp_shard > 1, or dp_replicate=1",
        "accelerate 1.15 parallelism_config.py",
        lambda job: job.layout.dp_replicate > 1 and job.layout.dp_shard == 1,
    ),
    Refusal(
        "no-tp-overlap",
        "accelerate overlaps no tensor-parallel traffic; expressible: no tp in it",
        "accelerate 1.15 has no setting for it",
        lambda job: job.layout.tp > 1 and job.overlaps("tp"),
    ),
    Refusal(
        "sharded-dp-overlaps",
        "FSDP2 always overlaps its collectives; expressible: overlap with dp",
        "torch.distributed.fsdp, FSDP2",
        lambda job: job.layout.dp_shard * job.layout.cp > 1 and not job.overlaps("dp"),
    ),
)
"""What accelerate does not run, beyond what its table leaves out."""


# ---------------------------------------------------------------- writing


def export_accelerate(job: Job) -> dict[str, str]:
    """The configuration, by its name.

    Raises:
        ExportError: accelerate cannot express the plan.
    """
    to, layout = target(NAME), job.layout
    reasons = [*refusals(job, to, coded_keys(job)), *order_refusals(job, to)]
    require_expressible(reasons + reasons_of(REFUSALS, job))
    head = [
        *stamp(job, to),
        f"use, on each host: accelerate launch --config_file {FILE_NAME} --machine_rank "
        "<its number from 0>",
        "--main_process_ip <host 0> --main_process_port <port> train.py",
        f"NOT SET, the program's own: micro-batches of {layout.mbs}, {layout.num_microbatches} of "
        "them accumulated,",
        f"sequences of {job.scenario.training.sequence_length} tokens, optimizer, data",
    ]
    return {FILE_NAME: file_text([*commented(head), *yaml_lines(accelerate_settings(job))])}


def accelerate_settings(job: Job) -> Settings:
    """All settings by their dotted names."""
    to = target(NAME)
    settings: Settings = {
        "compute_environment": "LOCAL_MACHINE",
        DISTRIBUTED_TYPE: "FSDP",
        "num_machines": hosts_of(job).number,
        "num_processes": job.scenario.num_accelerators,
        "rdzv_backend": "static",
        "fsdp_config.fsdp_version": 2,
        "fsdp_config.fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "fsdp_config.fsdp_state_dict_type": "SHARDED_STATE_DICT",
    }
    settings |= job.settings(to, "training.precision", "zero_stage", "recompute")
    settings |= job.settings(to, "tp", "cp", "dp_shard", "dp_replicate")
    if job.layout.cp > 1:
        settings |= job.settings(to, "cp_kind")
    return settings


# ---------------------------------------------------------------- reading


def interpret_accelerate(script: LaunchScript, scenario: Scenario) -> Interpretation:
    """What a file of `accelerate launch` means.

    Raises:
        InputError: a value is of the wrong kind, or it starts something else than FSDP2.
    """
    to = target(NAME)
    result = Interpretation(script, next(iter(to.orders)))
    script.choice(DISTRIBUTED_TYPE, ("FSDP",), "FSDP")
    table_values = to.read({name: _plain(value) for name, value in script.values().items()})
    for key in ("tp", "cp", "dp_replicate"):
        result.state(key, script.integer(to.names[key], 1), to.names[key])
    _read_shards(result, scenario.num_accelerators)
    zero_stage = int(table_values.get("zero_stage", "3"))
    result.state("zero_stage", zero_stage, *to.settings_of("zero_stage"))
    if result.layout["cp"] > 1:
        kind = table_values.get("cp_kind", "all_gather")
        result.state("cp_kind", kind, *to.settings_of("cp_kind"))
    recompute = table_values.get("recompute", "none")
    result.state("recompute", recompute, *to.settings_of("recompute"))
    # tensor-parallel plans of transformers do not shard what lies between matmuls
    result.state("sp", False)
    if "training.precision" in table_values:
        precision = table_values["training.precision"]
        result.state("training.precision", precision, *to.settings_of("training.precision"))
    for key in ("mbs", "training"):
        result.note_default(key, LEFT_TO_PROGRAM[key])
    return result


def _read_shards(result: Interpretation, num_accelerators: int) -> None:
    """State dp_shard: without a setting, over the processes that are left."""
    script, layout = result.script, result.layout
    name = target(NAME).names["dp_shard"]
    left = max(num_accelerators // (layout["tp"] * layout["cp"] * layout["dp_replicate"]), 1)
    if not script.has(name):
        result.note_default("dp_shard", f"{left}: FSDP shards over the processes that are left")
    result.state("dp_shard", script.integer(name, left), name)


def _plain(value: Any) -> Any:
    """Switches as accelerate takes them, as text or not: 'True', 'false'."""
    return value.lower() if isinstance(value, str) and value.lower() in ("true", "false") else value
