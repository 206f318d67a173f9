"""Rules of every layout, under all software: degrees, batch, sequence, offload, chunks."""

from __future__ import annotations

from math import gcd

import numpy as np

from planner.cost.context import CostContext
from planner.cost.layers import shared_ffn
from planner.cost.offload import offloads_optimizer
from planner.frameworks.rule import MEGATRON, Rule, divides
from planner.layouts.layout import LayoutLike
from planner.layouts.numeric import Boolean, Integer, Numeric
from planner.search.rules.context import CONTEXT_RULES
from planner.search.rules.recompute import RECOMPUTE_RULES


def max_chunks(ctx: CostContext, vp: Numeric) -> Integer:
    """The most chunks that a pipeline may have: one a layer, and where the software allows empty
    ones at both ends, two more."""
    return ctx.model.num_layers + 2 * (ctx.software.empty_end_chunks & (np.asarray(vp) > 2))


def _cuts_feed_forward(ctx: CostContext, x: LayoutLike) -> Boolean:
    """Whether tp divides the feed-forward sizes of all kinds of layers."""
    # layers of a pattern have sizes of their own, so that the model's counts for nothing
    widths = [shared_ffn(ctx.model, kind.blocks) for kind in ctx.layer_kinds]
    return divides(x.tp, gcd(ctx.model.ffn_hidden_size * (not ctx.model.layer_pattern), *widths))


STRUCTURAL_RULES = (
    Rule(
        "tp-divides-heads",
        "attention heads are a multiple of tp",
        MEGATRON + "; deepspeedai/DeepSpeed#3634",
        ("tp",),
        lambda ctx, x: (
            not ctx.model.num_attention_layers or divides(x.tp, ctx.model.num_attention_heads)
        ),
    ),
    Rule(
        "tp-divides-ffn",
        "the feed-forward size is a multiple of tp",
        MEGATRON,
        ("tp",),
        _cuts_feed_forward,
    ),
    Rule(
        "world-size",
        "tp·cp·pp·dp is the number of accelerators",
        "definition",
        ("dp", "tp", "cp", "pp"),
        lambda ctx, x: x.tp * x.cp * x.pp * x.dp_shard * x.dp_replicate == ctx.num_accelerators,
    ),
    Rule(
        "batch-divides",
        "the global batch is a multiple of mbs·dp",
        MEGATRON + "; verl-project/verl#1811",
        ("mbs", "dp"),
        lambda ctx, x: ctx.training.allows_batch(
            x.mbs * x.dp_shard * x.dp_replicate * x.num_microbatches
        ),
    ),
    Rule(
        "sp-divides-sequence",
        "sequence parallelism needs sequence_length/cp to be a multiple of tp",
        MEGATRON,
        ("sp", "tp", "cp"),
        lambda ctx, x: (np.asarray(x.sp) == 0) | divides(x.tp * x.cp, ctx.training.sequence_length),
    ),
    Rule(
        "sp-needs-tp",
        "sequence parallelism needs tp > 1",
        "NVIDIA-NeMo/Megatron-Bridge parallelism guide",
        ("sp", "tp"),
        lambda ctx, x: (np.asarray(x.sp) == 0) | (np.asarray(x.tp) > 1),
    ),
    Rule(
        "cp-divides-sequence",
        "sequence_length is a multiple of 2·cp, so that the causal mask balances",
        MEGATRON,
        ("cp",),
        lambda ctx, x: (np.asarray(x.cp) == 1) | divides(2 * x.cp, ctx.training.sequence_length),
    ),
    *CONTEXT_RULES,
    *RECOMPUTE_RULES,
    Rule(
        "offload-needs-host",
        "offloading needs the accelerator's host: its link and memory",
        "definition",
        ("offload",),
        lambda ctx, x: (np.asarray(x.offload_index) == 0) | (ctx.accelerator.host is not None),
    ),
    Rule(
        "optimizer-offload-needs-zero",
        "offloading optimizer states needs them sharded, zero_stage 1 or more",
        "DeepSpeed 0.19 runtime/zero/config.py (offload_optimizer); Megatron-LM arguments.py "
        "(optimizer_cpu_offload needs the precision-aware, so the distributed optimizer)",
        ("zero_stage", "offload"),
        lambda ctx, x: ~offloads_optimizer(x) | (np.asarray(x.zero_stage) >= 1),
    ),
    Rule(
        "chunks-have-layers",
        "every one of the pp·vp chunks has a layer; with vp > 2 the first and the last need none, "
        "where software builds embedding, head and loss alone",
        "definition",
        ("pp", "vp"),
        lambda ctx, x: x.pp * x.vp <= max_chunks(ctx, x.vp),
    ),
    Rule(
        "vp-needs-pp",
        "virtual stages need pp > 1",
        MEGATRON,
        ("vp", "pp"),
        lambda ctx, x: (np.asarray(x.vp) == 1) | (np.asarray(x.pp) > 1),
    ),
)
"""In the order in which they are judged: a layout left out counts for the first that it breaks."""
