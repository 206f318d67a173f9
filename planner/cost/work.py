"""What the kernels of a layer take, by kind of layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from planner.cost.compute import LayerTimes, layer_times, on_unique
from planner.cost.context import CostContext
from planner.cost.experts import ExpertTimes, expert_times
from planner.cost.layers import LayerKind
from planner.cost.ways import ring_members
from planner.layouts.layout import LayoutLike, Numeric


@dataclass(frozen=True, slots=True)
class Kind:
    """Layers alike: their share of all, kernel times, experts' (None: they have none).

    scans: whether the core of their times is a state-space scan.
    """

    share: float
    layer: LayerTimes
    experts: ExpertTimes | None
    scans: bool = False


def kind_times(ctx: CostContext, layout: LayoutLike) -> tuple[Kind, ...]:
    """Kernel times of every kind of layer the model has."""
    return tuple(
        Kind(kind.share, *_kind_times(ctx, layout, kind), "mamba" in kind.blocks)
        for kind in ctx.kinds
    )


def _kind_times(
    ctx: CostContext, layout: LayoutLike, kind: LayerKind
) -> tuple[LayerTimes, ExpertTimes | None]:
    layer = on_unique(
        lambda *keys: layer_times(ctx, kind.blocks, *keys),
        layout.tp, layout.cp, layout.mbs, layout.sp, ring_members(layout),
    )  # fmt: skip
    moe = ctx.model.moe
    if not kind.experts or moe is None:
        return layer, None
    # tokens are whole numbers of sequences over cp and tp: the keys of the table stay integers
    return layer, on_unique(
        lambda mbs, cp, cut, *keys: expert_times(
            ctx, moe, mbs * ctx.training.sequence_length / cp / cut, *keys
        ),
        layout.mbs, layout.cp, np.where(np.asarray(layout.sp) > 0, layout.tp, 1),
        layout.ep, layout.etp, layout.dispatcher_index,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Work:
    """Seconds of one layer's kernels on one micro-batch: what a stage does between exchanges."""

    gemm_forward: Numeric
    gemm_backward: Numeric
    attention_forward: Numeric
    attention_backward: Numeric
    memory_forward: Numeric
    memory_backward: Numeric
    recompute: Numeric
    gemm_weights: Numeric  # part of gemm_backward: gradients of weights; 0 where none run apart

    @property
    def forward(self) -> Numeric:
        """Seconds of the forward pass."""
        return self.gemm_forward + self.attention_forward + self.memory_forward

    @property
    def backward(self) -> Numeric:
        """Seconds of the backward pass, without what it runs again."""
        return self.gemm_backward + self.attention_backward + self.memory_backward


def layer_work(kind: Kind, again: Numeric) -> Work:
    """A layer's kernels, experts' among them; `again` is its column of RECOMPUTED_SHARES."""
    layer, experts = kind.layer, kind.experts
    if kind.scans:
        return _scan_work(layer, again)
    recompute = (
        again[0] * layer.gemm_forward
        + again[1] * layer.attention_forward
        + again[2] * layer.memory_forward
        + again[5] * layer.up_projection_forward
    )
    if experts is None:
        return Work(
            layer.gemm_forward, layer.gemm_backward,
            layer.attention_forward, layer.attention_backward,
            layer.memory_forward, layer.memory_backward, recompute, layer.gemm_weights,
        )  # fmt: skip
    rerun = (
        again[4] * experts.gemm_forward + np.maximum(again[2], again[4]) * experts.memory_forward
    )
    return Work(
        layer.gemm_forward + experts.gemm_forward,
        layer.gemm_backward + experts.gemm_backward,
        layer.attention_forward,
        layer.attention_backward,
        layer.memory_forward + experts.memory_forward,
        layer.memory_backward + experts.memory_backward,
        recompute + rerun,
        layer.gemm_weights + experts.gemm_weights,
    )


def _scan_work(layer: LayerTimes, again: Numeric) -> Work:
    """A state-space layer's kernels: its scan is memory-bound, and is run again in its own right.

    By module nothing of it is run again.
    """
    memory_again = np.minimum(again[2], again[6])
    return Work(
        layer.gemm_forward,
        layer.gemm_backward,
        0.0,
        0.0,
        layer.memory_forward + layer.attention_forward,
        layer.memory_backward + layer.attention_backward,
        again[0] * layer.gemm_forward
        + memory_again * layer.memory_forward
        + again[6] * layer.attention_forward,
        layer.gemm_weights,
    )


def mean_work(kinds: Sequence[Kind], works: Sequence[Work]) -> Work:
    """The mean layer."""
    if len(works) == 1:
        return works[0]
    return Work(
        *(
            sum(kind.share * getattr(work, f.name) for kind, work in zip(kinds, works, strict=True))
            for f in fields(Work)
        )
    )
