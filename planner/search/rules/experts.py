"""Rules of models with experts, under all software."""

from __future__ import annotations

import numpy as np

from planner.cost.context import CostContext
from planner.frameworks.rule import DUALPIPE, MEGATRON, Rule, divides, runs
from planner.layouts.keys import DISPATCHERS, RECOMPUTE
from planner.layouts.layout import LayoutLike
from planner.layouts.numeric import Boolean, Mask
from planner.problem.topology import Topology


def _alternates_chunks(x: LayoutLike) -> Mask:
    """Whether a rank can pass another micro-batch's chunk while tokens travel."""
    alternates: Mask = (np.asarray(x.pp) == 1) | runs(x, "interleaved", "dualpipe", "dualpipev")
    return alternates


def _has_another_microbatch(x: LayoutLike) -> Mask:
    return np.asarray(x.num_microbatches) > 1


def _keeps_experts(x: LayoutLike) -> Mask:
    """Whether no expert is recomputed as a whole."""
    keeps: Mask = ~np.isin(x.recompute_index, [RECOMPUTE.index("moe"), RECOMPUTE.index("full")])
    return keeps


def _overlaps_experts(x: LayoutLike) -> Mask:
    overlaps: Mask = np.asarray(x.overlap_ep) != 0
    return overlaps


def can_overlap_dispatch(ctx: CostContext, x: LayoutLike) -> Mask:
    """Whether tokens travel to experts and the rules let dispatch and combine run beside another
    micro-batch."""
    # layers of a pattern cannot (rule ep-overlap-needs-transformer-layers)
    possible = ctx.model.moe is not None and ctx.model.layer_pattern is None
    travels: Mask = (np.asarray(x.ep) > 1) & possible
    able: Mask = travels & _alternates_chunks(x) & _has_another_microbatch(x) & _keeps_experts(x)
    return able


def _dispatches(ctx: CostContext, x: LayoutLike) -> Boolean:
    """Whether expert groups dispatch by NCCL, or kernels of `flex` reach all of their members."""
    flex = np.asarray(x.dispatcher_index) == DISPATCHERS.index("flex")
    reached = np.asarray(x.ep) <= flex_members(ctx.topology)
    dispatches: Mask = ~flex | reached
    return dispatches


def flex_members(topology: Topology) -> float:
    """The most ranks that kernels of the `flex` dispatcher reach: 1 on accelerators that do not run
    them, those of a domain whose way out is over other links, else any number."""
    if not topology.accelerator.dispatch_kernels:
        return 1.0
    members = 1.0
    for tier in topology.tiers:
        if not tier.fabric.dispatch_kernels:
            return members
        members *= tier.width
    return np.inf


EXPERT_RULES = (
    Rule(
        "flex-needs-dispatch-kernels",
        "the flex dispatcher (DeepEP, HybridEP) needs CUDA with compute capability 8.0 or later; "
        "expert groups larger than an NVLink domain need InfiniBand or RoCE as well; alltoall runs "
        "everywhere",
        "github.com/deepseek-ai/DeepEP README; Megatron-LM megatron/training/arguments.py "
        "(validate_args, moe_token_dispatcher_type)",
        ("dispatcher", "ep"),
        _dispatches,
    ),
    Rule(
        "ep-divides-experts",
        "the number of experts is a multiple of ep",
        f"{MEGATRON}; pytorch/torchtitan#4831",
        ("ep",),
        lambda ctx, x: ctx.model.moe is None or divides(x.ep, ctx.model.moe.num_experts),
    ),
    Rule(
        "etp-divides-expert-ffn",
        "the experts' feed-forward size is a multiple of etp",
        MEGATRON,
        ("etp",),
        lambda ctx, x: (
            ctx.model.moe is None or divides(x.etp, ctx.model.moe.expert_ffn_hidden_size)
        ),
    ),
    Rule(
        "experts-fit-ranks",
        "etp·ep divides tp·cp·dp_shard: experts live on the ranks of one pipeline stage, so "
        "pp·lcm(tp·cp, etp·ep) accelerators are needed at least",
        f"{MEGATRON}; NVIDIA-NeMo/Megatron-Bridge#6054; pytorch/torchtitan#4831",
        ("ep", "etp", "tp", "cp", "dp_shard"),
        lambda ctx, x: divides(x.etp * x.ep, x.tp * x.cp * x.dp_shard),
    ),
    Rule(
        "experts-need-sp",
        "experts under tp > 1 need sequence parallelism",
        MEGATRON,
        ("sp", "tp"),
        lambda ctx, x: (np.asarray(x.tp) == 1) | (np.asarray(x.sp) > 0),
    ),
    Rule(
        "ep-overlap-needs-virtual-stages",
        "overlapping dispatch and combine with pp > 1 needs virtual stages, interleaved, or "
        "dualpipe or dualpipev",
        f"NVIDIA-NeMo/Megatron-Bridge parallelism guide; {DUALPIPE}",
        ("overlap", "vp", "pp", "schedule"),
        lambda ctx, x: ~_overlaps_experts(x) | _alternates_chunks(x),
    ),
    Rule(
        "ep-overlap-needs-microbatches",
        "overlapping dispatch and combine needs another micro-batch to run beside",
        "definition",
        ("overlap", "num_microbatches"),
        lambda ctx, x: ~_overlaps_experts(x) | _has_another_microbatch(x),
    ),
    Rule(
        "ep-overlap-excludes-moe-recompute",
        "overlapping dispatch and combine excludes recomputing whole experts",
        "NVIDIA-NeMo/Megatron-Bridge parallelism guide",
        ("recompute", "overlap"),
        lambda ctx, x: ~_overlaps_experts(x) | _keeps_experts(x),
    ),
)

EXPERT_OVERLAP_RULES = (
    Rule(
        "ep-overlap-needs-ep",
        "overlapping dispatch and combine needs experts on several ranks: ep > 1",
        MEGATRON,
        ("overlap", "ep"),
        lambda ctx, x: ~_overlaps_experts(x) | (np.asarray(x.ep) > 1),
    ),
)
"""Of all models: those without experts have ep 1, and nothing to overlap."""
