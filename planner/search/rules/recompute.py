"""Rules of what is recomputed: modules that a model has, and counts of layers."""

from __future__ import annotations

import numpy as np

from planner.cost.context import CostContext
from planner.cost.offload import offloads_activations
from planner.cost.recompute import counts_layers
from planner.cost.stage_split import chunk_range
from planner.frameworks.rule import Rule, runs
from planner.layouts.keys import RECOMPUTE
from planner.layouts.layout import LayoutLike
from planner.layouts.numeric import Boolean, Mask

FULL = RECOMPUTE.index("full")

BLOCK = "Megatron-LM core 0.19 megatron/core/recompute.py (recompute_method block)"


def counted(x: LayoutLike) -> Mask:
    """Whether recomputed layers are counted."""
    return np.asarray(x.recompute_layers) > 0


def layers_alike(ctx: CostContext) -> bool:
    """Whether all layers that a step passes are of one kind, so that any n of them cost as much."""
    model = ctx.model
    return model.layer_pattern is None and len(ctx.layer_kinds) == 1 and not model.mtp_layers


def counts_within_chunks(ctx: CostContext, x: LayoutLike) -> Boolean:
    """Whether every chunk of a layout has the layers that it recomputes, and one of them more."""
    if not counts_layers(x):  # chunks of a table of layouts take long to count
        return True
    fewest, most = chunk_range(ctx.model.num_layers, x, ctx.reserved)
    layers = np.asarray(x.recompute_layers)
    return ~counted(x) | ((layers <= fewest) & (layers < most))


def _counts_of_like_layers(ctx: CostContext, x: LayoutLike) -> Boolean:
    if not counts_layers(x):
        return True
    plain = runs(x, "1f1b", "interleaved") & ~offloads_activations(x)
    return ~counted(x) | (plain & layers_alike(ctx))


RECOMPUTE_RULES = (
    Rule(
        "recompute-module",
        "recompute mla_up_proj needs latent attention, recompute moe needs experts",
        "definition",
        ("recompute",),
        lambda ctx, x: (
            (
                (np.asarray(x.recompute_index) != RECOMPUTE.index("mla_up_proj"))
                | bool(ctx.model.mla)
            )
            & ((np.asarray(x.recompute_index) != RECOMPUTE.index("moe")) | bool(ctx.model.moe))
        ),
    ),
    Rule(
        "recompute-layers-full",
        "recompute_layers counts layers of recompute full",
        BLOCK,
        ("recompute_layers", "recompute"),
        lambda ctx, x: ~counted(x) | (np.asarray(x.recompute_index) == FULL),
    ),
    Rule(
        "recompute-layers-in-chunks",
        "recompute_layers is at most the layers of every one of the pp·vp chunks, and fewer than "
        "those of one: all is recompute_layers=0",
        BLOCK,
        ("recompute_layers", "pp", "vp"),
        counts_within_chunks,
    ),
    Rule(
        "recompute-layers-alike",
        "recompute_layers needs layers of one kind (no dense ones among those with experts, no "
        "pattern, no prediction layers), 1f1b or interleaved, and no activations offloaded",
        "definition: which layers come first is not told apart",
        ("recompute_layers", "schedule", "offload"),
        _counts_of_like_layers,
    ),
)
