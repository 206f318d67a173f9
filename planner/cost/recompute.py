"""What a layout runs again: a kind of work of all layers, or of the first n of every chunk whole.

By count (`recompute_layers` n of `recompute` full; Megatron's block method) each of the pp·vp
chunks runs its first n layers again and keeps all of the others. Layers are alike then and no chunk
has fewer (`planner.search.rules.recompute`), so of L layers pp·vp·n are, and vp·n on every rank.
"""

from __future__ import annotations

import numpy as np

from planner.cost.compute import RECOMPUTED_SHARES
from planner.cost.context import CostContext
from planner.cost.layers import num_layers
from planner.layouts.layout import LayoutLike, Numeric


def counts_any(layout: LayoutLike) -> bool:
    """Whether any row counts layers: where none does, nothing of it need be costed."""
    found: bool = np.any(layout.recompute_layers).item()
    return found


def recomputed_shares(ctx: CostContext, layout: LayoutLike) -> Numeric:
    """Share of the mean layer's forward pass that is run again, by kind of work (first axis)."""
    shares = RECOMPUTED_SHARES[:, layout.recompute_index]
    if not counts_any(layout):
        return shares
    counted = layout.pp * layout.vp * layout.recompute_layers / num_layers(ctx.model)
    return shares * np.where(np.asarray(layout.recompute_layers) > 0, counted, 1.0)


def kept_whole(layout: LayoutLike, layers: Numeric) -> Numeric:
    """Of `layers` layers on a rank those that are not run again, where layers are counted; else
    none."""
    counted = np.asarray(layout.recompute_layers)
    return np.where(counted > 0, layers - layout.vp * counted, 0)
