"""Every key of a published row and what is done with it; the words of rows and what they mean.

This module is data. `row_models` and `row_jobs` turn a row into a scenario and a layout by it.
To read a key that is ignored today, or a new one: change its entry in ROW_KEYS, give
`PublishedRun` the field if it is of the top level, and use it in one of those two modules. A test
holds ROW_KEYS against the shipped rows and against the fields of `PublishedRun`.
"""

import re
from dataclasses import dataclass
from enum import Enum
from typing import Any

from planner.problem.hardware import AttentionBackend
from planner.problem.precision import TrainingPrecision
from planner.problem.training import CudaGraphs

# ---------------------------------------------------------------- keys


class Use(Enum):
    """What a key of a row is for."""

    MODEL = "read into the model"
    HARDWARE = "read into the topology"
    TRAINING = "read into the training job"
    SOFTWARE = "read into the choice of the software profile"
    LAYOUT = "read into the layout"
    MEASURED = "what predictions are compared with"
    GROUPING = "names the row, or says which rows belong together"
    IGNORED = "changes no prediction"


class Unknown(Enum):
    """What a null of a key does, or its absence where it may be absent."""

    REFUSES = "the row cannot be scored"
    ALLOWED = "the note says what is taken instead"


@dataclass(frozen=True, slots=True)
class RowKey:
    """One key of a row.

    name: dotted for keys inside `moe`, `overlap`, `measured` and `std`.
    note: of a key that is read, what null means or which values are refused; of an ignored one,
    why no prediction reads it.
    """

    name: str
    use: Use
    unknown: Unknown
    note: str = ""


def _read(use: Use, unknown: Unknown, names: str, note: str = "") -> tuple[RowKey, ...]:
    return tuple(RowKey(name, use, unknown, note) for name in names.split())


def _ignored(names: str, note: str) -> tuple[RowKey, ...]:
    return _read(Use.IGNORED, Unknown.ALLOWED, names, note)


_REFUSES, _ALLOWED = Unknown.REFUSES, Unknown.ALLOWED

ROW_KEYS: tuple[RowKey, ...] = (
    # ---- the row
    *_read(Use.GROUPING, _ALLOWED, "id source quality"),
    *_read(Use.GROUPING, _ALLOWED, "config_key", "repeats of one configuration; null: the id"),
    *_read(Use.GROUPING, _ALLOWED, "rank_group", "null: the row is not ranked"),
    *_read(Use.GROUPING, _ALLOWED, "split_hint", "null: the row's half follows its config_key"),
    *_ignored("derived missing_fields check check_ratio check_flags flops_convention",
              "how the row was made and checked"),
    # ---- the model
    *_read(Use.MODEL, _ALLOWED, "model_name", "GPT has biases and positions; HYBRIDS ship"),
    *_read(Use.MODEL, _REFUSES, "n_layers hidden ffn_hidden n_heads n_kv_heads vocab gated_mlp",
           "a hybrid's may be null: its name says them"),
    *_read(Use.MODEL, _ALLOWED, "tied_embeddings", "null: tied in a GPT, in others not"),
    *_read(Use.MODEL, _ALLOWED, "head_dim", "null: hidden / n_heads"),
    *_read(Use.MODEL, _ALLOWED, "moe", "null: a dense model"),
    *_read(Use.MODEL, _REFUSES, "moe.n_experts moe.topk moe.expert_ffn"),
    *_read(Use.MODEL, _ALLOWED, "moe.shared moe.dense_layers moe.mtp_layers", "null: none"),
    *_read(Use.MODEL, _ALLOWED, "moe.mla", "null: no latent attention"),
    *_read(Use.MODEL, _REFUSES, "moe.mla.kv_lora moe.mla.nope moe.mla.rope moe.mla.v"),
    *_read(Use.MODEL, _ALLOWED, "moe.mla.q_lora", "null: queries are not compressed"),
    *_read(Use.MODEL, _ALLOWED, "moe.sliding_window_half",
           "the window of every second layer; null: none"),
    *_ignored("params_b", "parameters are counted from the dimensions"),
    # ---- the hardware
    *_read(Use.HARDWARE, _REFUSES, "gpu n_gpus"),
    *_read(Use.HARDWARE, _ALLOWED, "gpu_family", "read where the gpu does not ship"),
    *_read(Use.HARDWARE, _ALLOWED, "gpus_per_nvlink_domain",
           "null: the usual topology's; HSDP is refused"),
    *_read(Use.HARDWARE, _ALLOWED, "nic_gbps_per_gpu",
           "null: the usual topology's; counted in rows_assumed_network"),
    # ---- the training job
    *_read(Use.TRAINING, _ALLOWED, "task", "any but FULL_TASKS is refused"),
    *_read(Use.TRAINING, _REFUSES, "seq_len gbs"),
    *_read(Use.TRAINING, _REFUSES, "dtype", "any but PRECISIONS is refused"),
    *_read(Use.TRAINING, _REFUSES, "attention", "any but ATTENTIONS is refused"),
    *_read(Use.TRAINING, _ALLOWED, "moe.routing",
           "null: uneven, as real routers are; a CAPACITY other than 1 is refused"),
    *_read(Use.TRAINING, _ALLOWED,
           "overlap.preset_facts.cuda_graph_impl overlap.preset_facts.helpers",
           "null: no CUDA graphs"),
    *_read(Use.TRAINING, _ALLOWED, "overlap.preset_facts.cuda_graph_scope",
           "null: cuda_graph_impl says it; partial graphs of any modules are costed alike"),
    *_ignored("overlap.preset_facts.fp8_dot_product_attention",
              "attention is costed in 16 bits whatever the matmuls' precision"),
    # ---- the software
    *_read(Use.SOFTWARE, _ALLOWED, "framework",
           "null, or any that no profile names: software fallback; counted in"
           " rows_assumed_software, and in no fit and no other figure"),
    *_read(Use.SOFTWARE, _ALLOWED, "overlap.torch_compile", "null: compiled where it can be"),
    *_read(Use.SOFTWARE, _ALLOWED, "notes", "read for EAGER_NORM only"),
    *_read(Use.SOFTWARE, _ALLOWED,
           "overlap.grad_reduce_in_bf16 overlap.preset_facts.grad_reduce_in_bf16"
           " overlap.fp8_param_gather overlap.preset_facts.fp8_param_gather"
           " overlap.optimizer_bytes overlap.preset_facts.optimizer_bytes",
           "bytes of gradients, weights in low precision, bytes of a parameter's optimizer states;"
           " null: as the profile has them"),
    *_ignored("overlap.preset overlap.preset_file", "which preset of the framework the row ran"),
    *_ignored("overlap.fused_ce", "the profile says what a loss keeps (logits_bytes)"),
    *_ignored("overlap.fsdp_float8_all_gather",
              "the profile says which weights travel cast (gathers_weights_as_cast)"),
    *_ignored("overlap.preset_facts.use_megatron_fsdp", "false wherever it is given"),
    *_ignored("overlap.preset_facts.cutedsl_fused_grouped_mlp overlap.preset_facts.flags",
              "one fused kernel more or less; kernels are costed as the profile's"),
    # ---- the layout
    *_read(Use.LAYOUT, _REFUSES, "tp cp pp dp mbs zero_stage recompute"),
    *_read(Use.LAYOUT, _ALLOWED, "sp", "null is refused where tp > 1"),
    *_read(Use.LAYOUT, _ALLOWED, "vp", "null is refused where pp > 1"),
    *_read(Use.LAYOUT, _ALLOWED, "ep", "null is refused where the model has experts"),
    *_read(Use.LAYOUT, _ALLOWED, "etp",
           "null: tp under ETP_IS_TP and MEGATRON_BASED where the degrees allow it, else 1"),
    *_read(Use.LAYOUT, _ALLOWED, "grad_accum", "null: gbs / (dp·mbs); refused where it differs"),
    *_read(Use.LAYOUT, _ALLOWED, "overlap", "null: what the software hides by default"),
    *_read(Use.LAYOUT, _ALLOWED, "overlap.preset_facts", "null: the row ran no preset"),
    *_read(Use.LAYOUT, _ALLOWED,
           "overlap.tp overlap.tp_overlap overlap.tp_comm_overlap overlap.async_tp"
           " overlap.tp_comm_overlap(userbuffers) overlap.grad_sync overlap.grad_reduce"
           " overlap.overlap_grad_reduce overlap.dp_bucketed_overlap overlap.zero1 overlap.p2p"
           " overlap.pp overlap.moe_a2a_overlap overlap.preset_facts.overlap_grad_reduce"
           " overlap.preset_facts.moe_a2a_overlap",
           "see OVERLAP_FLAGS; null: what the software hides by default"),
    *_read(Use.LAYOUT, _ALLOWED,
           "overlap.dispatcher overlap.preset_facts.moe_flex_dispatcher_backend"
           " overlap.preset_facts.moe_token_dispatcher_type", "null: all-to-all"),
    *_read(Use.LAYOUT, _ALLOWED, "overlap.cp_comm_type", "null: the software's first cp_kind"),
    *_read(Use.LAYOUT, _ALLOWED, "overlap.zero1_group_size overlap.sharding",
           "null: states are sharded over all of dp"),
    *_ignored("overlap.param_sync overlap.overlap_param_gather",
              "the overlap of dp covers gathers and reductions together"),
    *_ignored("overlap.hybrid_zero_overlap", "as the overlap of dp, which these rows have anyway"),
    *_ignored("overlap.p2p_overlap", "given in words; the software's own overlap of pp is taken"),
    *_ignored("overlap.ddp_impl", "an option of frameworks of 2021, in their profile"),
    *_ignored("overlap.schedule", "vp says whether 1F1B is interleaved"),
    *_read(Use.LAYOUT, _ALLOWED, "overlap.activation_offload",
           "null: none; true is refused, for it is of modules that the row does not name"),
    *_read(Use.LAYOUT, _ALLOWED,
           "overlap.cpu_offloading_num_layers overlap.preset_facts.cpu_offloading_num_layers",
           "null or 0: none; fewer than all but RESIDENT_LAYERS are refused"),
    *_ignored("overlap.preset_facts.recompute_modules overlap.preset_facts.recompute_num_layers"
              " overlap.preset_facts.recompute_granularity",
              "recompute says the same"),
    *_ignored("overlap.preset_facts.pp_layout", "layers are split as the software splits them"),
    # ---- the measurements
    *_read(Use.MEASURED, _ALLOWED, "measured std"),
    *_read(Use.MEASURED, _ALLOWED, "measured.oom measured.peak_mem_gb"),
    *_read(Use.LAYOUT, _ALLOWED, "measured.mfu measured.hfu",
           "their ratio tells selective from full recompute, see MAX_SELECTIVE_HFU"),
    *_read(Use.MEASURED, _ALLOWED, "std.iter_time_s", "null: no time is compared"),
    *_read(Use.MEASURED, _ALLOWED, "std.mfu_bf16peak_causal", "null counts as 0 for --min-mfu"),
    *_ignored("measured.iter_time_s measured.tokens_per_s_per_gpu measured.tflops_per_gpu",
              "std has the step time that follows from them"),
    *_ignored("std.basis std.tokens_per_s_per_gpu std.flops_per_token_causal"
              " std.flops_per_token_full std.mfu_bf16peak_full",
              "how std was computed; predictions count their own FLOPs"),
)  # fmt: skip
"""Every key of the shipped rows, once, and a few that only other rows have."""


# ---------------------------------------------------------------- words

FULL_TASKS = (None, "pretrain")
"""`task`: those in which every parameter is trained."""

HYBRIDS = re.compile(r"nemotron[\s_-]*v?3[\s_-]*(nano|super|ultra)(?![a-z])")
"""`model_name`, folded: hybrids, of which a model ships as nemotron-3-…; rows have no key for a
layer pattern."""

FAMILIES = (
    "llama", "mixtral", "mistral", "qwen", "deepseek", "grok", "gpt-oss", "nemotron", "gpt", "mpt",
    "internlm", "kimi",
)  # fmt: skip
"""`model_name`, folded: families of models, the first that is in the name."""

GPT_OSS = re.compile(r"gpt[\s_-]*oss")
"""`model_name`, folded: models that have GPT_OSS_FIELDS, for which rows have no keys."""

GPT_OSS_FIELDS: dict[str, Any] = {
    "linear_bias": True,
    "biases": ("router",),
    "attention_sinks": True,
    "clamped_activation": True,
}
"""Fields of `Model` (gpt-oss model card, arXiv 2508.10925)."""

PRECISIONS: tuple[tuple[str, TrainingPrecision], ...] = (
    ("mxfp8", "mxfp8"),
    ("nvfp4", "nvfp4"),
    ("fp8-blockwise", "fp8-blockwise"),
    ("fp8-rowwise", "fp8-rowwise"),
    ("fp8", "fp8"),
    ("fp16", "fp16"),
    ("bf16", "bf16"),
)
"""How `dtype` begins → the precision, the first match; FP8 that names no scaling has one scale per
tensor."""

ATTENTIONS: dict[str, tuple[AttentionBackend, ...]] = {
    "flash": ("flash-v1", "flash"),
    "flash(sdpa)": ("flash-v2", "flash"),
    "flash(te)": ("flash",),
    "flash(te/cudnn fused)": ("flash",),
    "flash(cudnn)": ("flash",),
    "flash-v1": ("flash-v1",),
    "flash-v2": ("flash-v2",),
    "flash-v3": ("flash-v3",),
    "naive": ("naive",),
    "naive(torch)": ("naive",),
    "naive(fused softmax)": ("fused-softmax",),
}
"""`attention` → backends that mean it; the first that the accelerator has figures for is costed.
Flash attention without a version is version 1: the sources that do not name one are of mid-2023
(llm-foundry's Triton kernels, InternEvo's flash-attn 1)."""

BALANCED = ("force-balanced", "fake balanced", "tokendrop", "token drop", "capacity factor")
"""In `moe.routing`, folded: every rank's experts get as many rows as any other's. Tokens beyond an
expert's capacity are dropped, and its rows are padded to it."""

CAPACITY = re.compile(r"capacity(?: factor)?[ =]*(\d+(?:\.\d+)?)")
"""The same: an expert's capacity, over the rows of an even share. Only 1 is costed."""

GRAPHS: dict[object, CudaGraphs] = {
    "full_iteration": "full",
    "transformer_engine": "partial",
    "local": "partial",
}
"""`cuda_graph_impl` of a preset → how much of a step its CUDA graphs hold; `local` are those that
Megatron-Core captures itself, layer by layer unless FULL_GRAPH is their scope."""

FULL_GRAPH = "full_iteration"
"""In a name of a preset's `helpers`, or its `cuda_graph_scope` where graphs are on: the CUDA graph
holds the whole iteration."""

UNCOMPILED = {"torchtitan": "torchtitan-eager"}
"""Profile → the profile of its rows whose `torch_compile` is false. Others have fused kernels of
their own."""

GRADIENT_BYTES = {True: 2.0, False: 4.0}
"""`grad_reduce_in_bf16` → bytes of a gradient."""

EAGER_NORM = "fused rmsnorm kernel off"
"""In `notes`, folded: norms run operator by operator."""

ETP_IS_TP = frozenset({"megatron-core", "nemo", "megatron-zero-bubble"})
"""Profiles whose experts are sharded over tp unless told otherwise (Megatron-Core's
`expert_tensor_parallel_size` defaults to `tensor_model_parallel_size`)."""

MEGATRON_BASED = re.compile(r"megatron(?!.*deepspeed)")
"""`framework`, folded, of frameworks without a profile that do the same. Megatron-DeepSpeed's
experts are not sharded unless told to (--enable-expert-tensor-parallelism)."""

RECOMPUTES = {
    "none": "none",
    "selective": "selective",
    "selective(core_attn)": "selective",
    "selective(op)": "operators",
    "selective layer": "alternate",
    "full": "full",
    "full (uniform)": "full",
    "selective(mla_up_proj)": "mla_up_proj",
    # the dense layers' MLP: three layers of a DeepSeek
    "selective(mlp)": "none",
    "selective(mla_up_proj+mlp)": "mla_up_proj",
    "selective(moe_act)": "act",
    "selective(act+norm)": "act_norm",
    "selective(layernorm+moe_act)": "act_norm",
    "selective(layernorm+moe)": "moe",
}
"""`recompute` → a layout's."""

COUNTED_RECOMPUTE = re.compile(r"full, block method, (\d+) layer\(s\) per stage")
"""`recompute` that counts layers."""

MAX_SELECTIVE_HFU = 1.2
"""`measured.hfu` over `measured.mfu` above which more than the attention core was recomputed:
full recompute makes it 4/3, the core less than 1.1 (Korthikanti et al. 2022, table 5)."""

OVERLAP_FLAGS = {
    "tp": ("tp_comm_overlap(userbuffers)", "tp_comm_overlap", "tp_overlap", "tp", "async_tp"),
    "dp": ("grad_sync", "grad_reduce", "overlap_grad_reduce", "dp_bucketed_overlap", "zero1"),
    "pp": ("p2p", "pp"),
    "ep": ("moe_a2a_overlap",),
}
"""Axis → flags of `overlap`, or of its preset, that say whether its traffic overlaps with
computation; the first that is given counts."""

DISPATCHER_FLAGS = ("dispatcher", "moe_flex_dispatcher_backend", "moe_token_dispatcher_type")
"""Flags of `overlap`, or of its preset, that name the dispatcher; the first known one counts."""

DISPATCHERS = {"a2a": "alltoall", "deepep": "flex", "hybridep": "flex", "flex": "flex"}
"""Their values, folded → a layout's dispatcher."""
