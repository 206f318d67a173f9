"""DeepSpeed: its rules, a plan as its JSON configuration, and a configuration read.

JSON has no comments: the head of a plan's file is its key `planner`, which DeepSpeed ignores. The
training program decides the rest, such as the model.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np

from planner.cost.stage_split import layers_by_stage
from planner.frameworks.job import (
    Job,
    Refusal,
    coded_keys,
    order_refusals,
    reasons_of,
    refusals,
    require_expressible,
)
from planner.frameworks.rule import Rule, SettingsRule
from planner.frameworks.script import LEFT_TO_PROGRAM, Interpretation, LaunchScript
from planner.frameworks.target import Settings, target
from planner.frameworks.text import stamp
from planner.problem.scenario import Scenario

NAME = "deepspeed"
FILE_NAME = "ds_config.json"

OVERLAP = "zero_optimization.overlap_comm"
PARTITION = "pipeline.partition"


# ---------------------------------------------------------------- rules

LAYOUT_RULES = (
    Rule(
        "zero2-excludes-pipeline",
        "ZeRO stages 2 and 3 exclude a pipeline",
        "DeepSpeed runtime/pipe/engine.py",
        ("zero_stage", "pp"),
        lambda ctx, x: (np.asarray(x.zero_stage) < 2) | (np.asarray(x.pp) == 1),
    ),
)
"""On layouts, by id in profiles."""

BATCH_DIVIDES = SettingsRule(
    "batch-divides",
    "the batch is micro-batch times accumulation times data parallelism",
    "{version} runtime/config.py",
)

REFUSALS = (
    Refusal(
        "no-tp-overlap",
        "DeepSpeed overlaps no tensor-parallel traffic; expressible: no tp in it",
        "DeepSpeed 0.19 has no setting for it",
        lambda job: job.layout.tp > 1 and job.overlaps("tp"),
    ),
    Refusal(
        "default-stage-split",
        "DeepSpeed splits pipelines by the number of modules, not as stage_layers says; "
        "expressible: the default split",
        "DeepSpeed runtime/pipe/module.py (partition_method)",
        lambda job: job.layout.pp > 1 and job.layout.stage_layers != _default_split(job),
    ),
)
"""What DeepSpeed does not run, beyond what its table leaves out."""


def _default_split(job: Job) -> tuple[int, ...] | None:
    """The split that stage_layers would have to be; None where a job has none."""
    model, software = job.scenario.model, job.scenario.software
    if job.layout.stage_layers is None:
        return None
    # a named split that is the default one runs as well as none
    plain = replace(job.layout, stage_layers=None)
    return tuple(layers_by_stage(model.num_layers, plain, software.reserved_layers(model)))


# ---------------------------------------------------------------- writing


def export_deepspeed(job: Job) -> dict[str, str]:
    """The configuration, by its name.

    Raises:
        ExportError: DeepSpeed cannot express the plan.
    """
    to = target(NAME)
    reasons = [*refusals(job, to, coded_keys(job)), *order_refusals(job, to)]
    require_expressible(reasons + reasons_of(REFUSALS, job))
    document: dict[str, Any] = {"planner": stamp(job, to) + _unset(job)}
    for name, value in deepspeed_settings(job).items():
        *sections, key = name.split(".")
        place = document
        for section in sections:
            place = place.setdefault(section, {})
        place[key] = value
    return {FILE_NAME: json.dumps(document, indent=2, ensure_ascii=False) + "\n"}


def deepspeed_settings(job: Job) -> Settings:
    """All settings by their dotted names."""
    to, layout = target(NAME), job.layout
    settings = job.settings(
        to, "mbs", "num_microbatches", "training.global_batch_size", "zero_stage", "recompute",
        "training.precision",
    )  # fmt: skip
    settings[OVERLAP] = job.overlaps("dp")
    if layout.tp > 1:
        settings |= job.settings(to, "tp")
    if layout.pp > 1:
        settings |= job.settings(to, "pp")
        settings[PARTITION] = "uniform"
    return settings


def _unset(job: Job) -> list[str]:
    """What is left to the training program."""
    layout = job.layout
    lines = [
        "NOT SET: optimizer, data, and what the program builds itself:",
        f"sequences of {job.scenario.training.sequence_length} tokens",
    ]
    if layout.pp > 1:
        lines.append(f"PipelineModule(num_stages={layout.pp}, partition_method='uniform')")
    if layout.pp == 1 and layout.recompute == "full":
        lines.append("activation checkpointing of every layer")
    return lines


# ---------------------------------------------------------------- reading


def interpret_deepspeed(script: LaunchScript, scenario: Scenario) -> Interpretation:
    """What a configuration of DeepSpeed means.

    Raises:
        InputError: a value is of the wrong kind.
    """
    to = target(NAME)
    table_values = to.read(script.values())
    result = Interpretation(script, next(iter(to.orders)))
    for key in ("tp", "pp"):
        result.state(key, script.integer(to.names[key], 1), to.names[key])
    result.state("offload", table_values["offload"], *to.settings_of("offload"))
    (stage,) = to.settings_of("zero_stage")
    result.state("zero_stage", script.integer(stage, 0, minimum=0), stage)
    _read_batch(result, scenario.num_accelerators)
    # outside a pipeline the program decides on checkpointing, and no setting tells
    (interval,) = to.settings_of("recompute")
    if script.has(interval):
        result.state("recompute", table_values.get("recompute", "none"), interval)
    precision = table_values.get("training.precision")
    if precision:
        settings = to.settings_of("training.precision")
        result.state("training.precision", precision, *settings)
    if script.has(OVERLAP):
        # only data-parallel traffic is DeepSpeed's to overlap
        result.state("overlap", "dp" if script.is_on(OVERLAP) else "none", OVERLAP)
    for key, text in LEFT_TO_PROGRAM.items():
        if key not in result.layout:
            result.note_default(key, text)
    return result


def _read_batch(result: Interpretation, num_accelerators: int) -> None:
    """Of batch, micro-batch and accumulation two make the third; all three must agree."""
    script, to = result.script, target(NAME)
    names = [to.names[k] for k in ("training.global_batch_size", "mbs", "num_microbatches")]
    batch, micro, steps = (script.integer(name) for name in names)
    dp = max(num_accelerators // (result.layout["tp"] * result.layout["pp"]), 1)
    if batch and micro and steps and batch != micro * steps * dp:
        result.refuse(
            BATCH_DIVIDES,
            f"{names[0]}={batch}, {names[1]}={micro}, {names[2]}={steps}, dp={dp}",
            [f"{names[0]}={micro * steps * dp}"],
            version=to.version,
        )
        return
    if micro is None and batch:
        micro = max(batch // ((steps or 1) * dp), 1)
        result.note_default("mbs", f"{micro}: DeepSpeed derives {names[1]} from the others")
    if micro is None:
        return
    result.state("mbs", micro, names[1])
    if batch is None and steps is not None:
        batch = micro * steps * dp
    if batch is not None:
        result.state("training.global_batch_size", batch, *names)
