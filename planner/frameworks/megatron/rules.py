"""Megatron's rules: on layouts, on the settings of a script, and on jobs to be launched.

Megatron-Bridge runs Megatron-Core, so what the core refuses holds for both.
"""

from __future__ import annotations

import numpy as np

from planner.cost.offload import offloads_activations
from planner.frameworks.job import NOT_WRITTEN, Job, Refusal
from planner.frameworks.megatron.flags import CP_SIZES
from planner.frameworks.rule import MEGATRON, TORCH, Rule, SettingsRule, divides, runs

VERSION = "megatron-core 0.19.2"
"""That of megatron.yaml: what scripts are read as, and files written for."""

# ---------------------------------------------------------------- on layouts, by id in profiles

LAYOUT_RULES = (
    Rule(
        "kv-heads-replicate",
        "key/value heads are a multiple or a divisor of tp",
        "Megatron-LM core 0.16 and later; modelscope/ms-swift#8219",
        ("tp",),
        lambda ctx, x: (
            divides(x.tp, ctx.model.num_key_value_heads)
            | divides(ctx.model.num_key_value_heads, np.asarray(x.tp))
        ),
    ),
    Rule(
        "tp-divides-kv-heads",
        "key/value heads are a multiple of tp",
        "Megatron-LM core 0.15 and earlier; torchtitan models' parallelize.py",
        ("tp",),
        lambda ctx, x: divides(x.tp, ctx.model.num_key_value_heads),
    ),
    Rule(
        "interleaved-microbatches",
        "interleaved, the micro-batches are a multiple of pp",
        f"{MEGATRON}; {TORCH}",
        ("num_microbatches", "vp", "pp", "schedule"),
        lambda ctx, x: (
            ~runs(x, "interleaved", "interleaved-zb") | divides(x.pp, x.num_microbatches)
        ),
    ),
    Rule(
        "stages-even",
        "the layers are a multiple of pp·vp",
        "Megatron-LM 2021 arguments.py; NVIDIA/Megatron-LM#1304",
        ("pp", "vp"),
        lambda ctx, x: divides(x.pp * x.vp, ctx.model.num_layers),
    ),
    Rule(
        "activation-offload-excludes-pipeline",
        "offloading whole layers' activations excludes a pipeline",
        "NVIDIA-NeMo/Megatron-Bridge parallelism guide (cpu_offloading needs pp=1)",
        ("pp", "offload"),
        lambda ctx, x: ~offloads_activations(x) | (np.asarray(x.pp) == 1),
    ),
    Rule(
        "activation-offload-excludes-recompute",
        "offloading whole layers' activations excludes recomputing any",
        "Megatron-LM core 0.16 transformer_config.py (cpu_offloading)",
        ("recompute", "offload"),
        lambda ctx, x: ~offloads_activations(x) | (np.asarray(x.recompute_index) == 0),
    ),
    Rule(
        "no-context-parallelism",
        "the framework has no context parallelism",
        "Megatron-LM before core 0.5; Megatron-DeepSpeed",
        ("cp",),
        lambda ctx, x: np.asarray(x.cp) == 1,
    ),
)

# ---------------------------------------------------------------- on the settings of a script

_ARGUMENTS = f"{VERSION} arguments.py"
_TRANSFORMER = f"{VERSION} transformer_config.py"
_STAGES = f"{_ARGUMENTS}; NVIDIA/Megatron-LM#1304"

ONE_STAGE_SPLIT = SettingsRule("one-pipeline-split", "these exclude each other", _STAGES)
STAGE_LAYOUT_TEXT = SettingsRule(
    "pipeline-layout", "a layout has E, t, m, L, |, and (…)*n or x*n for repeats", _STAGES
)
STAGE_LAYOUT_CHUNKS = SettingsRule(
    "pipeline-layout", "the chunks of the layout are a multiple of pp", _STAGES
)
STAGE_LAYOUT_LAYERS = SettingsRule(
    "stage-layers", "the layout holds the model's {num_layers} layers", _STAGES
)
END_STAGES_LEAVE_EVEN = SettingsRule(
    "stage-layers",
    "the other stages share the rest of the {num_layers} layers evenly",
    _STAGES,
)
STAGES_EVEN = SettingsRule(
    "stages-even", "without a layout the layers are a multiple of pp", _STAGES
)
CHUNKS_EVEN = SettingsRule(
    "stages-even", "a stage's {stage_layers} layers are a multiple of it", _STAGES
)

CP_SIZES_NEEDED = SettingsRule(
    "cp-hierarchical-sizes",
    f"needs {CP_SIZES}, whose product is cp={{cp}}; without it ranks train without context "
    "parallelism",
    f"{_ARGUMENTS}; NVIDIA-NeMo/Megatron-Bridge#2665",
)
CP_SIZES_MULTIPLY = SettingsRule(
    "cp-hierarchical-sizes", "two sizes, whose product is cp", _ARGUMENTS
)

EVAL_BATCH_DIVIDES = SettingsRule(
    "eval-batch-divides",
    "validation's global batch is a multiple of its micro-batch times dp",
    f"{_ARGUMENTS}; NVIDIA-NeMo/Megatron-Bridge#1697",
)

# of --cpu-offloading, which takes layers entirely; fine-grained offloading has neither limit
OFFLOAD_NEEDS_ONE_STAGE = SettingsRule(
    "offload-needs-one-stage", "offloading activations to the host needs pp=1", _TRANSFORMER
)
OFFLOAD_EXCLUDES_RECOMPUTE = SettingsRule(
    "offload-excludes-recompute", "offloading activations excludes recompute", _TRANSFORMER
)

# ---------------------------------------------------------------- on a rank order

PIPELINES_INSIDE_DP = SettingsRule(
    "pp-inside-dp",
    "pipelines are placed inside data parallelism only where etp·ep is tp·cp",
    f"{VERSION} core/parallel_state.py",
)


def fits_inside_dp(tp: int, cp: int, etp: int, ep: int) -> bool:
    """Whether pipelines can be placed inside data parallelism: the data-parallel degree of experts
    must be that of the other layers, also in a model without experts."""
    return etp * ep == tp * cp


def order_misfits(job: Job, order: str | None) -> list[str]:
    """Why Megatron cannot place a job in one of its rank orders, if so.

    Of a dense model the exporters set experts' degrees that fit.
    """
    layout = job.layout
    if order != "tp-cp-pp-dp" or layout.pp == 1 or job.scenario.model.moe is None:
        return []
    if fits_inside_dp(layout.tp, layout.cp, layout.etp, layout.ep):
        return []
    return [
        f"Megatron places pipelines inside data parallelism only where etp·ep is tp·cp "
        f"({layout.etp * layout.ep} is not {layout.tp * layout.cp}); expressible: the order "
        "tp-cp-dp-pp. Plan with --set search.orders=framework"
    ]


# ---------------------------------------------------------------- on a job: what Core does not run


def _recomputes_activation_functions(job: Job) -> bool:
    return job.layout.recompute in ("act", "act_norm")


CORE_REFUSALS = (
    Refusal(
        "layer-patterns",
        "model {model.name}: layer patterns and experts on a latent are not exported: their flags "
        "changed between releases, and those of this one are not confirmed; expressible: models "
        "without layer_pattern and moe.latent_size",
        NOT_WRITTEN,
        lambda job: bool(
            job.scenario.model.layer_pattern
            or (job.scenario.model.moe and job.scenario.model.moe.latent_size)
        ),
    ),
    Refusal(
        "schedules",
        "Megatron-LM has no pipeline schedule {layout.schedule}; expressible: 1f1b, or interleaved "
        "with vp > 1",
        f"{VERSION} core/pipeline_parallel/schedules.py",
        lambda job: job.layout.schedule not in ("1f1b", "interleaved"),
    ),
    Refusal(
        "tp-overlap-needs-sp",
        "Megatron overlaps tensor-parallel traffic with matmuls only under sequence parallelism; "
        "expressible: sp=true, or overlap without tp",
        _ARGUMENTS,
        lambda job: job.overlaps("tp") and job.layout.tp > 1 and not job.layout.sp,
    ),
    Refusal(
        "two-interleaved-stages-overlap-sends",
        "Megatron interleaves 2 stages only with overlapped sends; expressible: overlap with pp, "
        "more stages, or vp=1",
        _ARGUMENTS,
        lambda job: job.layout.vp > 1 and job.layout.pp == 2 and not job.overlaps("pp"),
    ),
    Refusal(
        "stages-name-chunks",
        "stage_layers {stage_layers} does not say how a stage's layers fall into {layout.vp} "
        "virtual stages; expressible: multiples of {layout.vp}, or the default split",
        NOT_WRITTEN,
        lambda job: job.chunk_layers() is None,
    ),
    Refusal(
        "activation-recompute-needs-experts",
        "recompute {layout.recompute} is expressible for models with experts alone",
        f"{_TRANSFORMER} (moe_act needs moe_grouped_gemm)",
        lambda job: _recomputes_activation_functions(job) and job.scenario.model.moe is None,
    ),
    Refusal(
        "activation-recompute-excludes-delayed-scaling",
        "recompute {layout.recompute} is not expressible under delayed scaling (precision fp8); "
        "expressible: another recompute, or precision fp8-blockwise or mxfp8",
        _TRANSFORMER,
        lambda job: (
            _recomputes_activation_functions(job) and job.scenario.training.precision == "fp8"
        ),
    ),
    Refusal(
        "etp-excludes-biases",
        "Megatron shards experts over etp only without biases; expressible: etp=1",
        _TRANSFORMER,
        lambda job: job.layout.etp > 1 and job.scenario.model.linear_bias,
    ),
)
"""What Megatron-Core does not run, whatever launches it: `check` cites them as megatron-core."""

MODEL_REFUSALS = (
    Refusal(
        "windowed-attention",
        "model {model.name}: windowed attention is not exported yet",
        NOT_WRITTEN,
        lambda job: bool(job.scenario.model.sliding_window),
    ),
    Refusal(
        "dense-layers-on-both-sides",
        "dense layers both before and between those with experts are not exported; expressible: "
        "num_dense_layers 0, or layer_period 1",
        NOT_WRITTEN,
        lambda job: (
            job.scenario.model.moe is not None
            and job.scenario.model.moe.num_dense_layers > 0
            and job.scenario.model.moe.layer_period > 1
        ),
    ),
    Refusal(
        "single-biases",
        "Megatron gives biases to {biases} not alone; expressible: linear_bias, or biases [qkv]",
        f"{_TRANSFORMER} (add_bias_linear, add_qkv_bias)",
        lambda job: job.scenario.model.biases not in ((), ("qkv",)),
    ),
    Refusal(
        "norms-before-blocks",
        "norms {model.block_norms} blocks are not expressible; expressible: before",
        NOT_WRITTEN,
        lambda job: job.scenario.model.block_norms != "before",
    ),
    Refusal(
        "attention-sinks-and-expert-gates",
        "attention sinks and gates of shared experts are not exported yet",
        NOT_WRITTEN,
        lambda job: bool(
            job.scenario.model.attention_sinks
            or (job.scenario.model.moe and job.scenario.model.moe.shared_expert_gate)
        ),
    ),
    Refusal(
        "predictions-need-rotary-positions",
        "prediction layers need rotary positions; expressible: mtp_layers 0",
        _ARGUMENTS,
        lambda job: bool(
            job.scenario.model.mtp_layers and job.scenario.model.num_position_embeddings
        ),
    ),
)
"""What of a model Megatron-LM's arguments do not express; Bridge takes it from a recipe."""
