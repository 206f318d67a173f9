"""A plan for torchtitan: arguments as a bash array (0.3), or the last TOML job file (0.2).

    source torchtitan-args.sh
    torchrun ... -m torchtitan.train "${TORCHTITAN_ARGS[@]}" <data, tokenizer, learning rate>

With a pipeline torchtitan's local batch holds all micro-batches of a step.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from planner.frameworks.job import (
    Job,
    coded_keys,
    order_refusals,
    reasons_of,
    refusals,
    require_expressible,
)
from planner.frameworks.target import SettingValue, Target, target
from planner.frameworks.text import (
    bash_array,
    bash_array_file,
    by_section,
    commented,
    file_text,
    flag_lines,
    stamp,
)
from planner.frameworks.torchtitan.rules import REFUSALS
from planner.frameworks.torchtitan.versions import ARGUMENTS, CONVERTERS, TOML, VERSIONS

FILE_NAME = "torchtitan-args.sh"
TOML_NAME = "torchtitan.toml"
ARRAY = "TORCHTITAN_ARGS"

KEYS = (
    "tp", "cp", "pp", "dp_shard", "dp_replicate",
    "training.global_batch_size", "training.sequence_length",
)  # fmt: skip
SUBCOMMAND = "activation-checkpoint"
"""Chosen as a word of its own, after all flags."""


def export_torchtitan(job: Job) -> dict[str, str]:
    """The arguments file, by its name.

    Raises:
        ExportError: torchtitan cannot express the plan.
    """
    to = target(ARGUMENTS.target)
    require_expressible(torchtitan_refusals(job, to) + order_refusals(job, to))
    remarks = [
        f'use: source {FILE_NAME}; torchrun ... -m torchtitan.train "${{{ARRAY}[@]}}" ...',
        "Not set here: data, tokenizer, learning rate, checkpoints.",
        *_unset(job, to),
    ]
    return {FILE_NAME: bash_array_file(job, to, remarks, arguments_array(job))}


def arguments_array(job: Job) -> list[str]:
    """The lines that set the array."""
    settings = torchtitan_settings(job, target(ARGUMENTS.target))
    chosen = settings.pop(SUBCOMMAND)  # what follows a subcommand is the subcommand's own
    return bash_array(ARRAY, [*flag_lines(settings), f"{SUBCOMMAND}:{chosen}"])


def export_torchtitan_toml(job: Job) -> dict[str, str]:
    """The job file, by its name.

    Raises:
        ExportError: torchtitan cannot express the plan.
    """
    to = target(TOML.target)
    require_expressible(torchtitan_refusals(job, to) + order_refusals(job, to))
    settings = torchtitan_settings(job, to)
    if CONVERTERS in settings:
        settings[CONVERTERS] = [settings[CONVERTERS]]
    lines = commented(
        [
            *stamp(job, to),
            f"use: --job.config_file {TOML_NAME}; data and such are yours",
            *_unset(job, to),
        ]
    )
    for section, values in by_section(settings).items():
        # true, numbers, plain text and lists are the same in JSON and TOML
        lines += ["", f"[{section}]", *(f"{k} = {json.dumps(v)}" for k, v in values.items())]
    return {TOML_NAME: file_text(lines)}


def torchtitan_refusals(job: Job, to: Target) -> list[str]:
    """Why torchtitan cannot express a job, whatever the order of its ranks."""
    training, model_name = job.scenario.training, job.scenario.model.name
    keys = [*coded_keys(job), "training.cuda_graphs"]
    if job.layout.pp > 1:
        keys.append("schedule")
    reasons = []
    if "training.precision" not in to.codes:  # 0.3: a model of its registry has its precision
        keys.remove("training.precision")
        registry, precision = to.codes["registry"], training.precision
        if precision != "bf16" and f"{model_name} {precision}" not in registry:
            reasons = [
                f"{to.version} has no {model_name} in precision {precision}; expressible: bf16, "
                f"and {', '.join(known for known in registry if not known.endswith('bf16'))}"
            ]
    return [*refusals(job, to, keys), *reasons, *reasons_of(REFUSALS, job)]


def _unset(job: Job, to: Target) -> list[str]:
    if _registered(job, to):
        return []
    names = VERSIONS[to.name].model_settings
    return [f"NOT SET: {names}; {to.version} ships no such model, give your own."]


def _registered(job: Job, to: Target) -> Mapping[str, SettingValue]:
    """The settings that name the job's model; none of one that torchtitan does not ship."""
    name = job.scenario.model.name
    registry = to.codes["registry"]
    return registry.get(f"{name} {job.scenario.training.precision}") or registry.get(name, {})


def torchtitan_settings(job: Job, to: Target) -> dict[str, Any]:
    """All settings by their names."""
    layout, version = job.layout, VERSIONS[to.name]
    settings: dict[str, Any] = {**_registered(job, to), **job.settings(to, *KEYS)}
    passed_at_once = layout.num_microbatches if layout.pp > 1 else 1
    settings[version.local_batch] = layout.mbs * passed_at_once
    if layout.pp > 1:
        settings |= job.settings(to, "mbs", "schedule")
        settings[version.stage_modules] = modules(job.chunk_layers() or [], version.head_module)
    if layout.tp > 1:
        settings |= job.settings(to, "sp")
    if job.scenario.model.moe is not None:
        settings |= job.settings(to, "ep", "dispatcher")
    if layout.cp > 1:
        settings |= job.settings(to, "cp_kind")
    # the profile torchtitan is of compiled code, torchtitan-eager of code that is not
    settings[version.compile] = not job.scenario.software.eager_elementwise
    if job.overlaps("tp") and layout.tp > 1:
        settings[version.async_tp] = True
    settings |= job.settings(to, "zero_stage", "training.cuda_graphs", "recompute", *to.options())
    if "training.precision" in to.codes:
        settings |= job.settings(to, "training.precision")
    return settings


def modules(chunks: Sequence[int], head: str) -> list[list[str]]:
    """Names of the modules of each chunk, in model order: 'tok_embeddings', 'layers.0', …"""
    names, layer = [], 0
    for count in chunks:
        names.append([f"layers.{layer + i}" for i in range(count)])
        layer += count
    names[0].insert(0, "tok_embeddings")
    names[-1] += ["norm", head]
    return names
