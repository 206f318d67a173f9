"""A plan as Megatron-LM arguments: a bash array in a file to be sourced.

    source megatron-args.sh
    torchrun ... pretrain_gpt.py "${MEGATRON_ARGS[@]}" <data, tokenizer, learning rate>

What Megatron cannot express is refused, never approximated.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from itertools import groupby

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
from planner.frameworks.megatron.write_model import model_refusals, model_settings
from planner.frameworks.target import Settings, Target, target
from planner.layouts.stage_split import chunk_layers
from planner.problem.training import Training

NAME = "megatron"
FILE_NAME = "megatron-args.sh"
ARRAY = "MEGATRON_ARGS"


def export_megatron(job: Job) -> dict[str, str]:
    """The arguments file, by its name.

    Raises:
        ExportError: Megatron cannot express the plan.
    """
    to = target(NAME)
    order = order_name(job.rank_order, to)
    reasons = [
        *megatron_refusals(job),
        *megatron_order_refusals(job, order),
        *order_refusals(job, to),
    ]
    if reasons or order is None:
        raise ExportError(*reasons)
    return {FILE_NAME: arguments_file(job, order)}


def megatron_refusals(job: Job) -> list[str]:
    """Why Megatron-LM cannot express a job, whatever the order of its ranks."""
    found = refusals(job, target(NAME), coded_keys(job)) + model_refusals(job.scenario.model)
    return found + core_refusals(job)


def core_refusals(job: Job) -> list[str]:
    """Why Megatron-Core cannot run a layout, whatever launches it."""
    layout, model, found = job.layout, job.scenario.model, []
    if model.layer_pattern or (model.moe and model.moe.latent_size):
        found.append(
            f"model {model.name}: layer patterns and experts on a latent are not exported: their "
            "flags changed between releases, and those of this one are not confirmed; "
            "expressible: models without layer_pattern and moe.latent_size"
        )
    if layout.schedule not in ("1f1b", "interleaved"):
        found.append(
            f"Megatron-LM has no pipeline schedule {layout.schedule}; expressible: 1f1b, or "
            "interleaved with vp > 1"
        )
    if job.overlaps("tp") and layout.tp > 1 and not layout.sp:
        found.append(
            "Megatron overlaps tensor-parallel traffic with matmuls only under sequence "
            "parallelism; expressible: sp=true, or overlap without tp"
        )
    if layout.vp > 1 and layout.pp == 2 and not job.overlaps("pp"):
        found.append(
            "Megatron interleaves 2 stages only with overlapped sends; expressible: overlap "
            "with pp, more stages, or vp=1"
        )
    if chunks_of(job) is None:
        found.append(
            f"stage_layers {'+'.join(map(str, layout.stage_layers or ()))} does not say how a "
            f"stage's layers fall into {layout.vp} virtual stages; expressible: multiples of "
            f"{layout.vp}, or the default split"
        )
    if layout.recompute in ("act", "act_norm") and model.moe is None:
        found.append(f"recompute {layout.recompute} is expressible for models with experts alone")
    if layout.recompute in ("act", "act_norm") and job.scenario.training.precision == "fp8":
        found.append(
            f"recompute {layout.recompute} is not expressible under delayed scaling (precision "
            "fp8); expressible: another recompute, or precision fp8-blockwise or mxfp8"
        )
    if layout.etp > 1 and model.linear_bias:
        found.append("Megatron shards experts over etp only without biases; expressible: etp=1")
    return found


def megatron_order_refusals(job: Job, order: str | None) -> list[str]:
    """With pp inside dp the experts' data-parallel degree must be the others' (parallel_state)."""
    layout = job.layout
    if order != "tp-cp-pp-dp" or layout.pp == 1 or job.scenario.model.moe is None:
        return []
    if layout.etp * layout.ep == layout.tp * layout.cp:
        return []
    return [
        f"Megatron places pipelines inside data parallelism only where etp·ep is tp·cp "
        f"({layout.etp * layout.ep} is not {layout.tp * layout.cp}); expressible: the order "
        "tp-cp-dp-pp. Plan with --set search.orders=framework"
    ]


def arguments_file(job: Job, order: str) -> str:
    """The text of the arguments file under one of Megatron's rank orders."""
    lines = [
        "# shellcheck shell=bash disable=SC2034",
        *commented(
            [
                *stamp(job, target(NAME)),
                f'use: source {FILE_NAME}; torchrun ... pretrain_gpt.py "${{{ARRAY}[@]}}" ...',
                "Not set here: data, tokenizer, learning rate, checkpoints. On parts before "
                "Blackwell,",
                "tensor and context parallelism need CUDA_DEVICE_MAX_CONNECTIONS=1 in the "
                "environment.",
            ]
        ),
        *array(job, order),
        "",
    ]
    return "\n".join(lines)


def array(job: Job, order: str) -> list[str]:
    """The lines that set the array."""
    lines = [f"{ARRAY}=("]
    for title, settings in megatron_settings(job, order).items():
        if settings:
            lines += [f"  # {title}", *(f"  {word}" for word in words(settings))]
    return [*lines, ")"]


def words(settings: Mapping[str, object]) -> list[str]:
    """Each setting as words of bash: a flag, and its values each safe as one word."""
    return [
        name if value is True else " ".join([name, *map(shlex.quote, str(value).split())])
        for name, value in settings.items()
    ]


def megatron_settings(job: Job, order: str) -> dict[str, Settings]:
    """All settings, in sections."""
    to = target(NAME)
    return {
        "model": model_settings(job, to),
        "batch and precision": job.settings(
            to, "mbs", "training.global_batch_size", "training.precision"
        ),
        "layout": _layout(job, to),
        "experts": _experts(job, to),
        "rank order": to.settings("order", order) | _dense_experts(job, order),
        "data parallelism": _data_parallelism(job, to) | _states(job),
        "recompute": recompute_settings(job, to),
        "offload": _offload(job, to),
    }


def recompute_settings(job: Job, to: Target) -> Settings:
    """What is run again: modules, all layers, or (block) the first ones of every chunk."""
    found = job.settings(to, "recompute")
    if job.layout.recompute_layers:
        found |= to.settings("recompute_method", "block") | job.settings(to, "recompute_layers")
    return found


def _layout(job: Job, to: Target) -> Settings:
    layout = job.layout
    found = job.settings(to, "tp", "pp", "cp")
    if layout.cp > 1:
        found |= job.settings(to, "cp_kind")
    if layout.cp_kind == "hierarchical":
        inner, outer = layout.cp_a2a, layout.cp // layout.cp_a2a
        found["--hierarchical-context-parallel-sizes"] = f"{inner} {outer}"
    if layout.tp > 1:
        found |= job.settings(to, "sp")
        if job.overlaps("tp"):
            found["--tp-comm-overlap"] = True
    if layout.pp > 1:
        found |= _stages(job)
    if layout.vp > 1 and not job.overlaps("pp"):
        found["--no-overlap-p2p-communication"] = True
    return found


def chunks_of(job: Job) -> list[int] | None:
    """Layers of every chunk in model order; None where the plan does not say."""
    model, software = job.scenario.model, job.scenario.software
    return chunk_layers(model.num_layers, job.layout, software.reserved_layers(model))


def _stages(job: Job) -> Settings:
    """How layers are split over stages and virtual stages; nothing for an even 1F1B pipeline."""
    chunks, predictions = chunks_of(job), job.scenario.model.mtp_layers
    assert chunks is not None
    if len(set(chunks)) > 1 or predictions:
        return {"--pipeline-model-parallel-layout": pipeline_layout(chunks, predictions)}
    return {"--num-layers-per-virtual-pipeline-stage": chunks[0]} if job.layout.vp > 1 else {}


def pipeline_layout(chunks: Sequence[int], predictions: int = 0) -> str:
    """Megatron's layout text, E embedding, t layer, m prediction, L loss: 'Et*7|t*8|t*7mL'."""
    stages = [f"t*{layers}" if layers > 1 else "t" * layers for layers in chunks]
    middle = [(stage, len(list(same))) for stage, same in groupby(stages[1:-1])]
    repeated = (f"({stage}|)*{n}" if n > 2 else f"{stage}|" * n for stage, n in middle)
    return f"E{stages[0]}|{''.join(repeated)}{stages[-1]}{'m' * predictions}L"


def _experts(job: Job, to: Target) -> Settings:
    """Where experts live and how tokens reach them; etp is always said, or Megatron takes tp."""
    if job.scenario.model.moe is None:
        return {}
    found = job.settings(to, "ep", "etp", "dispatcher")
    if job.overlaps("ep") and job.layout.ep > 1:
        found["--overlap-moe-expert-parallel-comm"] = True
    return found


def _dense_experts(job: Job, order: str) -> Settings:
    """Megatron counts experts' ranks of dense models too, and would refuse cp with pp inside dp."""
    layout = job.layout
    if job.scenario.model.moe is not None or order == "tp-cp-dp-pp" or layout.cp == 1:
        return {}
    return {"--expert-tensor-parallel-size": layout.tp * layout.cp}


def _data_parallelism(job: Job, to: Target) -> Settings:
    layout = job.layout
    found = job.settings(to, "zero_stage")
    if layout.zero_stage and layout.dp_replicate > 1:
        found |= job.settings(to, "dp_replicate")
    if job.overlaps("dp"):
        found["--overlap-grad-reduce"] = True
        if layout.zero_stage:
            found["--overlap-param-gather"] = True
    return found


def _states(job: Job) -> Settings:
    """What is held in fewer bytes than Megatron's defaults."""
    training: Training = job.scenario.training
    software = job.scenario.software
    switches = {
        "--grad-reduce-in-bf16": training.precision != "fp16" and software.gradient_bytes <= 2,
        "--fp8-param-gather": training.precision in software.low_precision_parameters,
    }
    return {flag: True for flag, on in switches.items() if on}


MODULES = ("attn_norm", "qkv_linear", "core_attn", "attn_proj", "mlp_norm")
EXPERT_MODULES = ("expert_fc1", "moe_act")
"""Modules whose inputs Megatron's fine-grained offloading takes: all there are."""


def _offload(job: Job, to: Target) -> Settings:
    """What lives with the host: of activations whole layers where the profile says so of its own,
    by Transformer Engine, else module by module."""
    found, model = job.settings(to, "offload"), job.scenario.model
    if "activations" not in job.layout.offload.split("+"):
        return found
    if "activation-offload-excludes-pipeline" in job.scenario.software.rules:
        del found["--fine-grained-activation-offloading"]
        return found | {"--cpu-offloading-num-layers": model.num_layers - 1}
    modules = (*MODULES, *(EXPERT_MODULES if model.moe else ()))
    return found | {"--offload-modules": " ".join(modules)}
