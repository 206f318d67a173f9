"""Seconds of a layer's kernels by kind of layer, one micro-batch, one rank, with recompute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.cost.compute import KernelTimes, RankShare, layer_times, on_unique, ring_members
from planner.cost.context import CostContext
from planner.cost.experts import ExpertShare, ExpertTimes, expert_times, sequence_cut
from planner.cost.layers import LayerKind
from planner.cost.passes import ForwardBackward
from planner.cost.recompute import RecomputedShares
from planner.layouts.layout import LayoutLike
from planner.layouts.numeric import Numeric


@dataclass(frozen=True, slots=True)
class KindTimes:
    """Kernel times of one kind of layer, and its share of all layers.

    experts: None where it has none; scans: whether the core of its times is a state-space scan.
    """

    share: float
    layer: KernelTimes
    experts: ExpertTimes | None
    scans: bool = False


def kind_times(ctx: CostContext, layout: LayoutLike) -> tuple[KindTimes, ...]:
    """Kernel times of every kind of layer the model has."""
    return tuple(
        KindTimes(
            kind.share,
            _layer_times(ctx, layout, kind),
            _expert_times(ctx, layout, kind),
            "mamba" in kind.blocks,
        )
        for kind in ctx.layer_kinds
    )


def _layer_times(ctx: CostContext, layout: LayoutLike, kind: LayerKind) -> KernelTimes:
    """Kernel times of a kind, computed once for each distinct share of a rank."""
    return on_unique(
        lambda *keys: layer_times(ctx, kind.blocks, RankShare(*keys)),
        layout.tp, layout.cp, layout.mbs, layout.sp, ring_members(layout),
    )  # fmt: skip


def _expert_times(ctx: CostContext, layout: LayoutLike, kind: LayerKind) -> ExpertTimes | None:
    """Times of a kind's experts, computed once for each distinct share of a rank."""
    moe = ctx.model.moe
    if not kind.has_experts or moe is None:
        return None
    return on_unique(
        lambda *keys: expert_times(ctx, moe, ExpertShare(*keys)),
        layout.mbs, layout.cp, sequence_cut(layout), layout.ep, layout.etp,
        layout.dispatcher_index,
    )  # fmt: skip


# ---------------------------------------------------------------- with recompute


@dataclass(frozen=True, slots=True)
class LayerWork:
    """Seconds of one layer's kernels: what a stage computes between collectives.

    weight_gradients: of gemm.backward; 0 where the software never runs them apart.
    """

    gemm: ForwardBackward
    attention: ForwardBackward
    memory_bound: ForwardBackward
    recompute: Numeric
    weight_gradients: Numeric

    @property
    def forward(self) -> Numeric:
        """Seconds of the forward pass."""
        return self.gemm.forward + self.attention.forward + self.memory_bound.forward

    @property
    def backward(self) -> Numeric:
        """Seconds of the backward pass, without what it recomputes."""
        return self.gemm.backward + self.attention.backward + self.memory_bound.backward


def layer_work(kind: KindTimes, recomputed: RecomputedShares) -> LayerWork:
    """A layer's kernels, experts' among them."""
    layer, experts = kind.layer, kind.experts
    if kind.scans:
        return _scan_work(layer, recomputed)
    recompute = (
        recomputed.gemm * layer.gemm.forward
        + recomputed.attention * layer.core.forward
        + recomputed.memory_bound * layer.memory_bound.forward
        + recomputed.up_projection * layer.up_projection
    )
    if experts is None:
        return LayerWork(
            layer.gemm, layer.core, layer.memory_bound, recompute, layer.weight_gradients
        )
    # an activation is recomputed with its experts, or as other memory-bound kernels are
    memory_bound = np.maximum(recomputed.memory_bound, recomputed.experts)
    expert_recompute = (
        recomputed.experts * experts.gemm.forward + memory_bound * experts.memory_bound.forward
    )
    return LayerWork(
        gemm=layer.gemm + experts.gemm,
        attention=layer.core,
        memory_bound=layer.memory_bound + experts.memory_bound,
        recompute=recompute + expert_recompute,
        weight_gradients=layer.weight_gradients + experts.weight_gradients,
    )


def _scan_work(layer: KernelTimes, recomputed: RecomputedShares) -> LayerWork:
    """A state-space layer's kernels: its scan is memory-bound, and is recomputed in its own right.

    By module nothing of it is recomputed.
    """
    memory_bound = np.minimum(recomputed.memory_bound, recomputed.scan)
    return LayerWork(
        gemm=layer.gemm,
        attention=ForwardBackward(0.0, 0.0),
        memory_bound=layer.memory_bound + layer.core,
        recompute=recomputed.gemm * layer.gemm.forward
        + memory_bound * layer.memory_bound.forward
        + recomputed.scan * layer.core.forward,
        weight_gradients=layer.weight_gradients,
    )


def mean_work(kinds: Sequence[KindTimes], works: Sequence[LayerWork]) -> LayerWork:
    """The mean layer's kernels."""
    if len(works) == 1:
        return works[0]

    def mean(values: Sequence[Numeric]) -> Numeric:
        return sum(kind.share * value for kind, value in zip(kinds, values, strict=True))

    def mean_of_both(passes: Sequence[ForwardBackward]) -> ForwardBackward:
        return ForwardBackward(
            mean([p.forward for p in passes]), mean([p.backward for p in passes])
        )

    return LayerWork(
        gemm=mean_of_both([work.gemm for work in works]),
        attention=mean_of_both([work.attention for work in works]),
        memory_bound=mean_of_both([work.memory_bound for work in works]),
        recompute=mean([work.recompute for work in works]),
        weight_gradients=mean([work.weight_gradients for work in works]),
    )
