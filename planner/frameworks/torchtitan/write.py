"""A plan for torchtitan: arguments as a bash array (0.3), or the last TOML job file (0.2).

    source torchtitan-args.sh
    torchrun ... -m torchtitan.train "${TORCHTITAN_ARGS[@]}" <data, tokenizer, learning rate>

With a pipeline torchtitan's local batch holds all micro-batches of a step.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

from planner.errors import ExportError
from planner.frameworks.job import Job, coded_keys, commented, order_refusals, refusals, stamp
from planner.frameworks.target import Settings, Target, target
from planner.layouts.stage_split import chunk_layers

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
    to = target("torchtitan")
    _require(job, to)
    lines = [
        "# shellcheck shell=bash disable=SC2034",
        *commented(
            [
                *stamp(job, to),
                f'use: source {FILE_NAME}; torchrun ... -m torchtitan.train "${{{ARRAY}[@]}}" ...',
                "Not set here: data, tokenizer, learning rate, checkpoints.",
                *_unset(job, to),
            ]
        ),
        *array(job),
        "",
    ]
    return {FILE_NAME: "\n".join(lines)}


def array(job: Job) -> list[str]:
    """The lines that set the array."""
    settings = torchtitan_settings(job, target("torchtitan"))
    chosen = settings.pop(SUBCOMMAND)
    words = [
        name if value is True else f"{name} {_words(value)}" for name, value in settings.items()
    ]
    return [f"{ARRAY}=(", *(f"  {word}" for word in words), f"  {SUBCOMMAND}:{chosen}", ")"]


def _words(value: Any) -> str:
    if isinstance(value, list):  # the modules of each part, one word a part
        return " ".join(shlex.quote(",".join(part)) for part in value)
    return shlex.quote(str(value))


def export_torchtitan_toml(job: Job) -> dict[str, str]:
    """The job file, by its name.

    Raises:
        ExportError: torchtitan cannot express the plan.
    """
    to = target("torchtitan-toml")
    _require(job, to)
    settings: dict[str, Any] = torchtitan_settings(job, to)
    converters = settings.get("model.converters")
    if converters:
        settings["model.converters"] = [converters]
    tables: dict[str, dict[str, Any]] = {}
    for name, value in settings.items():
        table, _, key = name.rpartition(".")
        tables.setdefault(table, {})[key] = value
    lines = commented(
        [*stamp(job, to), f"use: --job.config_file {TOML_NAME}; data and such are yours"]
    )
    lines += commented(_unset(job, to))
    for table, values in tables.items():
        lines += ["", f"[{table}]", *(f"{k} = {_toml(v)}" for k, v in values.items())]
    return {TOML_NAME: "\n".join([*lines, ""])}


def _toml(value: object) -> str:
    return json.dumps(value)  # true, numbers, plain text and lists are the same in both


def torchtitan_refusals(job: Job, to: Target) -> list[str]:
    """Why torchtitan cannot express a job, whatever the order of its ranks."""
    layout, training = job.layout, job.scenario.training
    keys = [*coded_keys(job), "training.cuda_graphs"]
    named = "training.precision" in to.codes
    if not named:
        keys.remove("training.precision")
    if layout.pp > 1:
        keys.append("schedule")
    found = refusals(job, to, keys)
    name, precision = job.scenario.model.name, training.precision
    if not named and precision != "bf16" and f"{name} {precision}" not in to.codes["registry"]:
        found.append(
            f"{to.version} has no {name} in precision {precision}; expressible: bf16, and "
            f"{', '.join(known for known in to.codes['registry'] if not known.endswith('bf16'))}"
        )
    if layout.dp_shard * layout.cp > 1 and not job.overlaps("dp"):
        found.append("torchtitan always overlaps sharded data parallelism; expressible: dp in it")
    if layout.pp > 1 and not job.overlaps("pp"):
        found.append("torchtitan always overlaps pipeline sends; expressible: overlap with pp")
    if layout.ep > 1 and job.overlaps("ep"):
        found.append("torchtitan does not overlap experts' exchanges; expressible: no ep in it")
    if layout.pp > 1 and training.cuda_graphs != "none":
        found.append("torchtitan captures no pipeline in CUDA graphs; expressible: none of them")
    if layout.pp > 1 and _chunks(job) is None:
        found.append(
            f"stage_layers does not say how layers fall into {layout.vp} virtual stages; "
            f"expressible: multiples of {layout.vp}, or the default split"
        )
    return found


def _require(job: Job, to: Target) -> None:
    reasons = torchtitan_refusals(job, to) + order_refusals(job, to)
    if reasons:
        raise ExportError(*reasons)


def _unset(job: Job, to: Target) -> list[str]:
    if _registered(job, to):
        return []
    what = "--module and --config" if to.name == "torchtitan" else "model.name and model.flavor"
    return [f"NOT SET: {what}; {to.version} ships no such model, give your own."]


def _registered(job: Job, to: Target) -> Mapping[str, Any]:
    name = job.scenario.model.name
    registry = to.codes["registry"]
    return registry.get(f"{name} {job.scenario.training.precision}") or registry.get(name, {})


def _chunks(job: Job) -> list[int] | None:
    model, software = job.scenario.model, job.scenario.software
    return chunk_layers(model.num_layers, job.layout, software.reserved_layers(model))


def torchtitan_settings(job: Job, to: Target) -> dict[str, Any]:
    """All settings by their names."""
    layout = job.layout
    prefix = "--" if to.name == "torchtitan" else ""
    found: dict[str, Any] = dict(_registered(job, to)) | job.settings(to, *KEYS)
    pipelined = layout.num_microbatches if layout.pp > 1 else 1
    found[f"{prefix}training.local_batch_size"] = layout.mbs * pipelined
    if layout.pp > 1:
        found |= job.settings(to, "mbs", "schedule")
        found[f"{prefix}parallelism.module_fqns_per_model_part"] = modules(
            _chunks(job) or [], "lm_head" if prefix else "output"
        )
    if layout.tp > 1:
        found |= job.settings(to, "sp")
    if job.scenario.model.moe is not None:
        found |= job.settings(to, "ep", "dispatcher")
    if layout.cp > 1:
        found |= job.settings(to, "cp_kind")
    found[f"{prefix}compile.enable"] = not job.scenario.software.eager_elementwise
    if job.overlaps("tp") and layout.tp > 1:
        section = "compile" if prefix else "parallelism"
        found[f"{prefix}{section}.enable_async_tensor_parallel"] = True
    rest: Settings = job.settings(to, "zero_stage", "training.cuda_graphs", "recompute")
    if "training.precision" in to.codes:
        rest |= job.settings(to, "training.precision")
    return found | rest


def modules(chunks: list[int], head: str) -> list[list[str]]:
    """Names of the modules of each chunk, in model order: 'tok_embeddings', 'layers.0', …"""
    found, layer = [], 0
    for count in chunks:
        found.append([f"layers.{layer + i}" for i in range(count)])
        layer += count
    found[0].insert(0, "tok_embeddings")
    found[-1] += ["norm", head]
    return found
