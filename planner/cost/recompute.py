"""What a layout recomputes, and which activations it therefore need not keep.

Two tables say it, with one row for each choice of `RECOMPUTE`: the shares of the forward pass's
work that the backward pass repeats (`RECOMPUTED`), and the shares of a layer's activations that are
kept (`KEPT`). A new choice is one row of each.

By count (`recompute_layers` n of `recompute` full; Megatron's block method) each of the pp·vp
chunks recomputes its first n layers and keeps all activations of the others. Layers are alike then
and no chunk has fewer (`planner.search.rules.recompute`), so of L layers pp·vp·n are recomputed,
and vp·n on every rank.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import Enum, auto

import numpy as np
from numpy.typing import NDArray

from planner.cost.context import CostContext
from planner.cost.layers import num_layers
from planner.layouts.keys import RECOMPUTE
from planner.layouts.layout import LayoutLike
from planner.layouts.numeric import Mask, Numeric

# ---------------------------------------------------------------- work recomputed


@dataclass(frozen=True, slots=True)
class RecomputedShares:
    """Shares of a layer's forward pass that the backward pass repeats, by the work; 0 to 1 each."""

    gemm: Numeric = 0.0  # matmuls, but for routed experts'
    attention: Numeric = 0.0  # the core between the projections
    memory_bound: Numeric = 0.0
    collectives: Numeric = 0.0  # of tensor parallelism
    experts: Numeric = 0.0  # routed experts, and the dispatch and combine around them
    up_projection: Numeric = 0.0  # of latent attention, beyond what `gemm` says
    scan: Numeric = 0.0  # of state-space blocks


RECOMPUTED: Mapping[str, RecomputedShares] = {
    "none": RecomputedShares(),
    "selective": RecomputedShares(attention=1.0),
    # every second matmul's output and attention's are kept (torchtitan, selective op)
    "operators": RecomputedShares(gemm=0.5, memory_bound=1.0, scan=1.0),
    "alternate": RecomputedShares(
        gemm=0.5, attention=0.5, memory_bound=0.5, collectives=0.5, experts=0.5, scan=0.5
    ),
    "full": RecomputedShares(
        gemm=1.0, attention=1.0, memory_bound=1.0, collectives=1.0, experts=1.0, scan=1.0
    ),
    "mla_up_proj": RecomputedShares(up_projection=1.0),
    "act": RecomputedShares(memory_bound=0.25),
    "act_norm": RecomputedShares(memory_bound=0.5),
    "moe": RecomputedShares(experts=1.0),
}

# the tables as one array per kind of work and activation, in the order of RECOMPUTE, which a
# layout's `recompute_index` picks from
_WORK = tuple(field.name for field in fields(RecomputedShares))
_RECOMPUTED_COLUMNS = {
    work: np.array([getattr(RECOMPUTED[choice], work) for choice in RECOMPUTE]) for work in _WORK
}


def recomputed_shares(ctx: CostContext, layout: LayoutLike) -> RecomputedShares:
    """Shares of the mean layer under a layout's recompute; where layers are counted, of theirs."""
    shares = {work: _RECOMPUTED_COLUMNS[work][layout.recompute_index] for work in _WORK}
    if counts_layers(layout):
        counted = layout.pp * layout.vp * layout.recompute_layers / num_layers(ctx.model)
        recomputing = np.where(np.asarray(layout.recompute_layers) > 0, counted, 1.0)
        shares = {work: share * recomputing for work, share in shares.items()}
    return RecomputedShares(**shares)


# ---------------------------------------------------------------- activations kept


class Activation(Enum):
    """What a layer keeps for its backward pass, told apart as far as recompute tells it apart."""

    LAYER_INPUT = auto()  # the residual stream, of layers of two blocks
    BLOCK_INPUT = auto()  # the same, of layers of one block
    ALWAYS = auto()  # the residual inside, dropout masks, latents, row statistics, gates
    NORM_OUTPUT = auto()  # what norms give the matmuls
    PROJECTED = auto()  # queries, keys and values; a state-space block's projected inputs
    UP_PROJECTED = auto()  # queries, keys and values of latent attention
    ATTENTION_OUTPUT = auto()
    SCORES = auto()  # where a backend writes them
    MLP_UP = auto()  # the output of the MLP's first matmul
    MLP_ACTIVATION = auto()
    SHARED_EXPERTS = auto()  # both of these, of shared experts
    EXPERTS = auto()  # inputs and outputs of routed experts' first matmul
    EXPERT_ACTIVATION = auto()


_WHOLE_LAYERS = tuple(set(Activation) - {Activation.LAYER_INPUT, Activation.BLOCK_INPUT})

KEPT: Mapping[str, Mapping[Activation, float]] = {
    "none": {},
    "selective": {Activation.SCORES: 0.0},
    # every second matmul's output and attention's, and the input of both blocks
    "operators": {
        Activation.LAYER_INPUT: 2.0,
        Activation.ALWAYS: 0.0,
        Activation.NORM_OUTPUT: 0.0,
        Activation.PROJECTED: 0.5,
        Activation.UP_PROJECTED: 0.5,
        Activation.SCORES: 0.0,
        Activation.MLP_UP: 0.5,
        Activation.MLP_ACTIVATION: 0.0,
        Activation.SHARED_EXPERTS: 0.5,
    },
    "alternate": dict.fromkeys(_WHOLE_LAYERS, 0.5),
    "full": dict.fromkeys(_WHOLE_LAYERS, 0.0),
    "mla_up_proj": {Activation.UP_PROJECTED: 0.0},
    "act": {Activation.MLP_ACTIVATION: 0.0, Activation.EXPERT_ACTIVATION: 0.0},
    "act_norm": {
        Activation.NORM_OUTPUT: 0.0,
        Activation.MLP_ACTIVATION: 0.0,
        Activation.EXPERT_ACTIVATION: 0.0,
    },
    "moe": {Activation.EXPERTS: 0.0, Activation.EXPERT_ACTIVATION: 0.0},
}
"""Share of each activation that is kept, 1 where none is given."""

_KEPT_COLUMNS: Mapping[Activation, NDArray[np.float64]] = {
    activation: np.array([KEPT[choice].get(activation, 1.0) for choice in RECOMPUTE])
    for activation in Activation
}


def kept_share(layout: LayoutLike, activation: Activation) -> Numeric:
    """Share of a layer's activation that a layout keeps for the backward pass."""
    share: Numeric = _KEPT_COLUMNS[activation][layout.recompute_index]
    return share


# ---------------------------------------------------------------- whole layers

_RECOMPUTES_LAYERS = np.isin(RECOMPUTE, ("alternate", "full"))


def recomputes_layers(layout: LayoutLike) -> Mask:
    """Whether layers are recomputed as a whole, all of them or some."""
    recomputes: Mask = _RECOMPUTES_LAYERS[layout.recompute_index]
    return recomputes


def counts_layers(layout: LayoutLike) -> bool:
    """Whether any row counts layers: where none does, nothing of it need be costed."""
    return np.any(layout.recompute_layers).item()


def layers_kept(layout: LayoutLike, layers: Numeric) -> Numeric:
    """Of `layers` layers on a rank those not recomputed, where layers are counted; else 0."""
    counted = np.asarray(layout.recompute_layers)
    return np.where(counted > 0, layers - layout.vp * counted, 0)
