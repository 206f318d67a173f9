"""A plan as Megatron-LM arguments: a bash array in a file to be sourced.

    source megatron-args.sh
    torchrun ... pretrain_gpt.py "${MEGATRON_ARGS[@]}" <data, tokenizer, learning rate>

What Megatron cannot express is refused, never approximated.
"""

from __future__ import annotations

from planner.frameworks.job import (
    Job,
    coded_keys,
    order_name,
    order_refusals,
    reasons_of,
    refusals,
    require_expressible,
)
from planner.frameworks.megatron import flags
from planner.frameworks.megatron.model import model_settings
from planner.frameworks.megatron.rules import CORE_REFUSALS, MODEL_REFUSALS, order_misfits
from planner.frameworks.megatron.stages import stage_settings
from planner.frameworks.target import Settings, Target, target
from planner.frameworks.text import bash_array, bash_array_file, flag_lines

NAME = "megatron"
FILE_NAME = "megatron-args.sh"
ARRAY = "MEGATRON_ARGS"

OFFLOADED_MODULES = ("attn_norm", "qkv_linear", "core_attn", "attn_proj", "mlp_norm")
OFFLOADED_EXPERT_MODULES = ("expert_fc1", "moe_act")
"""All modules whose inputs Megatron's fine-grained offloading takes."""


def export_megatron(job: Job) -> dict[str, str]:
    """The arguments file, by its name.

    Raises:
        ExportError: Megatron cannot express the plan.
    """
    to = target(NAME)
    order = megatron_order(job, to, megatron_refusals(job))
    remarks = [
        f'use: source {FILE_NAME}; torchrun ... pretrain_gpt.py "${{{ARRAY}[@]}}" ...',
        "Not set here: data, tokenizer, learning rate, checkpoints. On accelerators before "
        "Blackwell,",
        "tensor and context parallelism need CUDA_DEVICE_MAX_CONNECTIONS=1 in the environment.",
    ]
    return {FILE_NAME: bash_array_file(job, to, remarks, arguments_array(job, order))}


def megatron_order(job: Job, to: Target, reasons: list[str]) -> str:
    """The rank order of a target of Megatron's that numbers the ranks as planned.

    reasons: why else the target cannot express the job.

    Raises:
        ExportError: there are reasons, no such order, or one that Megatron refuses for this job.
    """
    order = order_name(job.rank_order, to)
    require_expressible([*reasons, *order_misfits(job, order), *order_refusals(job, to)])
    assert order is not None
    return order


def megatron_refusals(job: Job) -> list[str]:
    """Why Megatron-LM cannot express a job, whatever the order of its ranks."""
    beyond_table = reasons_of((*MODEL_REFUSALS, *CORE_REFUSALS), job)
    return refusals(job, target(NAME), coded_keys(job)) + beyond_table


def arguments_array(job: Job, order: str) -> list[str]:
    """The lines that set the array, under one of Megatron's rank orders."""
    lines = []
    for title, settings in megatron_settings(job, order).items():
        lines += [f"# {title}", *flag_lines(settings)] if settings else []
    return bash_array(ARRAY, lines)


def megatron_settings(job: Job, order: str) -> dict[str, Settings]:
    """All settings, in sections."""
    to = target(NAME)
    return {
        "model": model_settings(job, to),
        "batch and precision": job.settings(
            to, "mbs", "training.global_batch_size", "training.precision"
        ),
        "layout": _layout_settings(job, to),
        "experts": _expert_settings(job, to),
        "rank order": to.settings("order", order) | _dense_expert_settings(job, order),
        "data parallelism": _data_parallel_settings(job, to) | _precision_settings(job),
        "recompute": recompute_settings(job, to),
        "offload": _offload_settings(job, to),
    }


def recompute_settings(job: Job, to: Target) -> Settings:
    """What is recomputed: modules, all layers, or (block) the first ones of every chunk."""
    settings = job.settings(to, "recompute")
    if job.layout.recompute_layers:
        settings |= to.settings("recompute_method", "block")
        settings |= job.settings(to, "recompute_layers")
    return settings


def _layout_settings(job: Job, to: Target) -> Settings:
    layout = job.layout
    settings = job.settings(to, "tp", "pp", "cp")
    if layout.cp > 1:
        settings |= job.settings(to, "cp_kind")
    if layout.cp_kind == "hierarchical":  # without its sizes Megatron trains without cp
        inner, outer = layout.cp_a2a, layout.cp // layout.cp_a2a
        settings[flags.CP_SIZES] = f"{inner} {outer}"
    if layout.tp > 1:
        settings |= job.settings(to, "sp")
        if job.overlaps("tp"):
            settings[flags.TP_OVERLAP] = True
    if layout.pp > 1:
        settings |= stage_settings(job)
    if layout.vp > 1 and not job.overlaps("pp"):
        settings[flags.NO_PP_OVERLAP] = True
    return settings


def _expert_settings(job: Job, to: Target) -> Settings:
    """Where experts live and how tokens reach them; without etp Megatron would take tp."""
    if job.scenario.model.moe is None:
        return {}
    settings = job.settings(to, "ep", "etp", "dispatcher")
    if job.overlaps("ep") and job.layout.ep > 1:
        settings[flags.EP_OVERLAP] = True
    return settings


def _dense_expert_settings(job: Job, order: str) -> Settings:
    """Of a dense model, experts' degrees that fit pipelines inside data parallelism."""
    size = dense_expert_size(job, order)
    return {} if size is None else {flags.EXPERT_TENSOR_SIZE: size}


def dense_expert_size(job: Job, order: str) -> int | None:
    """The expert tensor size that a dense job must set, if any.

    Megatron counts experts' ranks of dense models too, and would refuse context parallelism with
    pipelines inside data parallelism (`rules.fits_inside_dp`).
    """
    layout = job.layout
    if job.scenario.model.moe is not None or order == "tp-cp-dp-pp" or layout.cp == 1:
        return None
    return layout.tp * layout.cp


def _data_parallel_settings(job: Job, to: Target) -> Settings:
    layout = job.layout
    settings = job.settings(to, "zero_stage")
    if layout.zero_stage and layout.dp_replicate > 1:
        settings |= job.settings(to, "dp_replicate")
    if job.overlaps("dp"):
        settings[flags.GRADIENT_OVERLAP] = True
        if layout.zero_stage:
            settings[flags.PARAMETER_OVERLAP] = True
    return settings


def _precision_settings(job: Job) -> Settings:
    """What has fewer bytes than Megatron's defaults: gradients, parameters."""
    training, software = job.scenario.training, job.scenario.software
    settings: Settings = {}
    if training.precision != "fp16" and software.gradient_bytes <= 2:
        settings[flags.BF16_GRADIENTS] = True
    if training.precision in software.low_precision_parameters:
        settings[flags.FP8_PARAMETERS] = True
    return settings


def _offload_settings(job: Job, to: Target) -> Settings:
    """What lives in the host's memory. Activations go layer by layer, by Transformer Engine, where
    the profile has the rule of that mode, and else module by module."""
    settings, model = job.settings(to, "offload"), job.scenario.model
    if "activations" not in job.layout.offload.split("+"):
        return settings
    # the rule is of Transformer Engine's mode only: a profile that has it runs that mode
    if "activation-offload-excludes-pipeline" in job.scenario.software.rules:
        del settings[flags.OFFLOAD_ACTIVATIONS]
        # Megatron refuses to offload all layers (transformer_config.py)
        return settings | {flags.OFFLOAD_LAYER_COUNT: model.num_layers - 1}
    modules = (*OFFLOADED_MODULES, *(OFFLOADED_EXPERT_MODULES if model.moe else ()))
    return settings | {flags.OFFLOAD_MODULES: " ".join(modules)}
