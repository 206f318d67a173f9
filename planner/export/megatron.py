"""A plan as Megatron-LM arguments: a bash array in a file to be sourced.

    source megatron-args.sh
    torchrun ... pretrain_gpt.py "${MEGATRON_ARGS[@]}" <data, tokenizer, learning rate>

Flags are those of megatron-core 0.19.2, megatron/training/arguments.py. What Megatron cannot
express is refused, never approximated.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from planner import __version__
from planner.errors import ExportError
from planner.export.megatron_experts import expert_layout_flags, expert_model_flags
from planner.grids import EXPERT_GRID
from planner.planfile import Plan
from planner.problem.model import Model
from planner.problem.scenario import Scenario, scenario_from_document
from planner.problem.software import Software
from planner.problem.training import Training
from planner.ranks import order_atoms

TARGET_VERSION = "megatron-core 0.19.2"
FILE_NAME = "megatron-args.sh"
ARRAY = "MEGATRON_ARGS"

ORDERS = {
    (): ("tp", "cp", "dp_shard", "dp_replicate", "pp"),
    ("--use-tp-pp-dp-mapping",): ("tp", "cp", "pp", "dp_shard", "dp_replicate"),
}
"""Flags to the rank order they give, innermost first (megatron/training/initialize.py)."""

PRECISION_FLAGS: Mapping[str, tuple[str, ...]] = {
    "bf16": ("--bf16",),
    "fp16": ("--fp16",),
    "fp8": ("--bf16", "--fp8-format hybrid", "--fp8-recipe delayed"),
    "mxfp8": ("--bf16", "--fp8-format e4m3", "--fp8-recipe mxfp8"),
    "fp8-blockwise": ("--bf16", "--fp8-format e4m3", "--fp8-recipe blockwise"),
    "nvfp4": ("--bf16", "--fp4-format e2m1", "--fp4-recipe nvfp4"),
}

RECOMPUTE_FLAGS: Mapping[str, tuple[str, ...]] = {
    "none": (),
    "selective": ("--recompute-granularity selective", "--recompute-modules core_attn"),
    "mla_up_proj": ("--recompute-granularity selective", "--recompute-modules mla_up_proj"),
    "act": ("--recompute-granularity selective", "--recompute-modules moe_act"),
    "act_norm": (
        "--recompute-granularity selective", "--recompute-modules moe_act", "layernorm",
    ),
    "moe": ("--recompute-granularity selective", "--recompute-modules moe"),
    "full": (
        "--recompute-granularity full", "--recompute-method uniform", "--recompute-num-layers 1",
    ),
}  # fmt: skip

CP_COMM_TYPES = {
    "ring": "p2p", "all_gather": "all_gather", "a2a": "a2a", "hierarchical": "a2a+p2p",
}  # fmt: skip


def export_megatron(plan: Plan) -> dict[str, str]:
    """The arguments file, by its name.

    Raises:
        ExportError: there is no layout, or Megatron cannot express it.
    """
    if plan.layout is None or plan.rank_order is None:
        raise ExportError(f"the plan holds no layout (status {plan.status}): nothing to export")
    if plan.layout["schedule"] not in ("1f1b", "interleaved"):
        raise ExportError(
            f"Megatron-LM has no pipeline schedule {plan.layout['schedule']}; expressible: 1f1b, "
            "or interleaved with vp > 1"
        )
    scenario = scenario_from_document(plan.inputs, "plan")
    sections = {
        "model": _model(scenario.model, scenario.training),
        "batch and precision": _batch(plan.layout, scenario.training),
        "layout": _layout(plan.layout, scenario.model),
        "experts": expert_layout_flags(plan.layout, scenario.model),
        "rank order": _order(plan.rank_order),
        "data parallelism": [
            *_data_parallelism(plan.layout),
            *_states(scenario.training, scenario.software),
        ],
        "recompute": _recompute(plan.layout["recompute"], scenario.model),
        "offload": _offload(plan.layout.get("offload", "none"), scenario),
    }
    lines = [*_head(plan, scenario), f"{ARRAY}=("]
    for title, flags in sections.items():
        if flags:
            lines += [f"  # {title}", *(f"  {_quoted(flag)}" for flag in flags)]
    return {FILE_NAME: "\n".join([*lines, ")", ""])}


def _quoted(flag: str) -> str:
    """A flag and its value, each safe as one word of bash."""
    name, _, value = flag.partition(" ")
    return f"{name} {shlex.quote(value)}" if value else name


def _head(plan: Plan, scenario: Scenario) -> list[str]:
    """Comment lines: what the file is for; text of the user's files stays on its line."""
    accelerator, fill = scenario.topology.accelerator, plan.fill or {}
    inner = scenario.topology.tiers[0].name
    return [
        "# shellcheck shell=bash disable=SC2034",
        f"# Arguments of Megatron-LM ({TARGET_VERSION}), written by planner {__version__}.",
        f"# inputs_sha256: {_line(plan.inputs_sha256)}",
        f"# {_line(scenario.model.name)} on {scenario.num_accelerators} x "
        f"{_line(accelerator.name)} of {_line(scenario.topology.name)}, "
        f"{fill.get(inner, scenario.topology.tiers[0].width)} ranks in each {_line(inner)} domain, "
        "domains in order.",
        f'# Use: source {FILE_NAME}; torchrun ... pretrain_gpt.py "${{{ARRAY}[@]}}" ...',
        "# Not set here: data, tokenizer, learning rate, checkpoints. On parts before Blackwell,",
        "# tensor and context parallelism need CUDA_DEVICE_MAX_CONNECTIONS=1 in the environment.",
    ]


def _line(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)


# ---------------------------------------------------------------- the job


def _model(model: Model, training: Training) -> list[str]:
    if training.document_length < training.sequence_length:
        raise ExportError(
            "pretrain_gpt.py attends to whole sequences; expressible: training without "
            "mean_document_length"
        )
    if model.sliding_window:
        raise ExportError(f"model {model.name}: windowed attention is not exported yet")
    if model.layer_pattern or (model.moe and model.moe.latent_size):
        raise ExportError(
            f"model {model.name}: layer patterns and experts on a latent are not exported: their "
            f"flags changed between releases, and those of {TARGET_VERSION} are not confirmed; "
            "expressible: models without layer_pattern and moe.latent_size"
        )
    flags = [
        f"--num-layers {model.num_layers}",
        f"--hidden-size {model.hidden_size}",
        f"--ffn-hidden-size {model.ffn_hidden_size}",
        f"--num-attention-heads {model.num_attention_heads}",
        f"--kv-channels {model.head_dim}",
    ]
    if model.num_key_value_heads != model.num_attention_heads:
        flags += ["--group-query-attention", f"--num-query-groups {model.num_key_value_heads}"]
    positions = max(training.sequence_length, model.num_position_embeddings)
    learned = model.num_position_embeddings > 0
    dropout = "0.1" if model.dropout else "0.0"
    flags += [
        f"--seq-length {training.sequence_length}",
        f"--max-position-embeddings {positions}",
        f"--position-embedding-type {'learned_absolute' if learned else 'rope'}",
        f"--vocab-size {model.vocab_size}",
        f"--normalization {'RMSNorm' if model.norm == 'rmsnorm' else 'LayerNorm'}",
        f"--attention-dropout {dropout}",
        f"--hidden-dropout {dropout}",
    ]
    switches = {
        "--swiglu": model.gated_mlp,
        "--untie-embeddings-and-output-weights": not model.tied_embeddings,
        "--disable-bias-linear": not model.linear_bias,
    }
    return flags + [flag for flag, on in switches.items() if on] + expert_model_flags(model)


def _batch(layout: Mapping[str, Any], training: Training) -> list[str]:
    if training.precision not in PRECISION_FLAGS:
        raise ExportError(
            f"precision {training.precision} is not expressible in Megatron; expressible: "
            f"{', '.join(PRECISION_FLAGS)}"
        )
    return [
        f"--micro-batch-size {layout['mbs']}",
        f"--global-batch-size {training.global_batch_size}",
        *PRECISION_FLAGS[training.precision],
    ]


# ---------------------------------------------------------------- the layout


def _layout(layout: Mapping[str, Any], model: Model) -> list[str]:
    flags = [
        f"--tensor-model-parallel-size {layout['tp']}",
        f"--pipeline-model-parallel-size {layout['pp']}",
        f"--context-parallel-size {layout['cp']}",
    ]
    if layout["cp"] > 1:
        flags.append(f"--cp-comm-type {CP_COMM_TYPES[layout['cp_kind']]}")
        if layout["cp_kind"] == "hierarchical":
            inner = layout["cp_a2a"]
            outer = layout["cp"] // inner
            flags += [f"--hierarchical-context-parallel-sizes {inner}", str(outer)]
    if layout["tp"] > 1 and layout["sp"]:
        flags.append("--sequence-parallel")
    overlap = layout["overlap"].split("+")
    if "tp" in overlap and layout["tp"] > 1:
        if not layout["sp"]:
            raise ExportError(
                "Megatron overlaps tensor-parallel traffic with matmuls only under sequence "
                "parallelism; expressible: sp=true, or overlap without tp"
            )
        flags.append("--tp-comm-overlap")
    if layout["pp"] > 1:
        flags += _stages(layout, model)
    if layout["vp"] > 1 and "pp" not in overlap:
        if layout["pp"] == 2:
            raise ExportError(
                "Megatron interleaves 2 stages only with overlapped sends; expressible: overlap "
                "with pp, more stages, or vp=1"
            )
        flags.append("--no-overlap-p2p-communication")
    return flags


def _stages(layout: Mapping[str, Any], model: Model) -> list[str]:
    """How layers are split over stages and virtual stages; nothing for an even 1F1B pipeline."""
    chunks = chunk_layers(layout, model.num_layers, model.num_reserved_layers)
    if len(set(chunks)) > 1 or model.mtp_layers:
        return [f"--pipeline-model-parallel-layout {pipeline_layout(chunks, model.mtp_layers)}"]
    return [f"--num-layers-per-virtual-pipeline-stage {chunks[0]}"] if layout["vp"] > 1 else []


def chunk_layers(layout: Mapping[str, Any], num_layers: int, reserved: int = 0) -> list[int]:
    """Layers of each of the pp·vp chunks in model order; stage i holds chunks i, i + pp, ….

    The default split gives the remainder, one layer each, to the middle chunks, and the last one
    `reserved` layers fewer where others hold more.
    """
    pp: int = layout["pp"]
    vp: int = layout["vp"]
    given: Sequence[int] | None = layout["stage_layers"]
    kept = reserved if (num_layers + reserved) // (pp * vp) > reserved else 0
    base, extra = divmod(num_layers + kept, pp * vp)
    start = (pp * vp - extra) // 2
    usual = [base + (start <= chunk < start + extra) for chunk in range(pp * vp)]
    usual[-1] -= kept
    if given is not None and list(given) != [sum(usual[stage::pp]) for stage in range(pp)]:
        if any(layers % vp for layers in given):
            raise ExportError(
                f"stage_layers {'+'.join(map(str, given))} does not say how a stage's layers fall "
                f"into {vp} virtual stages; expressible: multiples of {vp}, or the default split"
            )
        return [layers // vp for layers in given] * vp
    return usual


def pipeline_layout(chunks: Sequence[int], predictions: int = 0) -> str:
    """Megatron's layout text, E embedding, t layer, m prediction, L loss: 'Et*7|t*8|t*7mL'."""
    stages = [f"t*{layers}" if layers > 1 else "t" * layers for layers in chunks]
    middle = [(stage, len(list(same))) for stage, same in groupby(stages[1:-1])]
    repeated = (f"({stage}|)*{n}" if n > 2 else f"{stage}|" * n for stage, n in middle)
    return f"E{stages[0]}|{''.join(repeated)}{stages[-1]}{'m' * predictions}L"


def _order(order: Iterable[Sequence[Any]]) -> list[str]:
    """The mapping flag under which Megatron places ranks as planned."""
    planned: list[str] = []
    for atom, factor in order:
        if factor > 1 and (not planned or planned[-1] != atom):
            planned.append(atom)
    beyond_cp = any(atom in ("dp_shard.ep", "dp_shard.etp") for atom in planned)
    for flags, axes in ORDERS.items():
        megatron = order_atoms(axes, EXPERT_GRID)
        # groups of a pipeline must be the same for experts as for the rest
        split = beyond_cp and axes.index("pp") < axes.index("dp_shard")
        if planned == [atom for atom in megatron if atom in planned] and not split:
            return list(flags)
    orders = " and ".join("-".join(atoms) for atoms in ORDERS.values())
    raise ExportError(
        f"Megatron cannot place ranks in the order {'-'.join(planned)} (innermost first); "
        f"expressible: {orders}. Plan with --set search.orders=framework"
    )


def _data_parallelism(layout: Mapping[str, Any]) -> list[str]:
    stage, replicas = layout["zero_stage"], layout["dp_replicate"]
    if stage > 1:
        raise ExportError(
            f"ZeRO-{stage} is not expressible with Megatron's distributed optimizer (Megatron FSDP "
            "is another runtime and not exported yet); expressible: zero_stage 0 and 1"
        )
    flags = []
    if stage == 1:
        flags.append("--use-distributed-optimizer")
        if replicas > 1:
            flags.append(f"--num-distributed-optimizer-instances {replicas}")
    if "dp" in layout["overlap"].split("+"):
        flags.append("--overlap-grad-reduce")
        if stage == 1:
            flags.append("--overlap-param-gather")
    return flags


def _states(training: Training, software: Software) -> list[str]:
    """Flags of what is held in fewer bytes than Megatron's defaults."""
    switches = {
        "--grad-reduce-in-bf16": training.precision != "fp16" and software.gradient_bytes <= 2,
        "--fp8-param-gather": training.precision in software.low_precision_parameters,
    }
    return [flag for flag, on in switches.items() if on]


MODULES = ("attn_norm", "qkv_linear", "core_attn", "attn_proj", "mlp_norm")
EXPERT_MODULES = ("expert_fc1", "moe_act")
"""Modules whose inputs Megatron's fine-grained offloading takes: all there are."""


def _offload(kind: str, scenario: Scenario) -> list[str]:
    places = kind.split("+")
    flags = []
    if "optimizer" in places:
        flags += [
            "--optimizer-cpu-offload", "--optimizer-offload-fraction 1.0",
            "--use-precision-aware-optimizer", "--overlap-cpu-optimizer-d2h-h2d",
        ]  # fmt: skip
    if "activations" in places:
        if "activation-offload-excludes-pipeline" in scenario.software.rules:
            layers = scenario.model.num_layers - 1
            return [*flags, f"--cpu-offloading-num-layers {layers}"]
        modules = [*MODULES, *(EXPERT_MODULES if scenario.model.moe else ())]
        flags += ["--fine-grained-activation-offloading", f"--offload-modules {modules[0]}"]
        flags += modules[1:]
    return flags


def _recompute(kind: str, model: Model) -> list[str]:
    if kind not in RECOMPUTE_FLAGS or (kind in ("act", "act_norm") and model.moe is None):
        raise ExportError(
            f"recompute {kind} is not expressible in Megatron; expressible: "
            f"{', '.join(RECOMPUTE_FLAGS)}"
        )
    return list(RECOMPUTE_FLAGS[kind])
