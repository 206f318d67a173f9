"""Collectives that stay exposed: what the passes of a layer, or of a step, do not hide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from planner.cost.collectives import GroupCost
from planner.cost.context import CostContext
from planner.cost.layers import num_layers
from planner.cost.overlap import beside, beyond, chunked
from planner.cost.pipeline import (
    BOTH_WAYS,
    overlapped_share,
    synchronisation_window,
    waits_for_weights,
)
from planner.cost.recompute import recomputed_shares
from planner.cost.traffic import occurrences
from planner.cost.ways import ring_members
from planner.cost.work import Kind, Work
from planner.layouts.layout import LayoutLike, Numeric


def state_exposed(
    ctx: CostContext,
    layout: LayoutLike,
    mean: Work,
    hidden: Mapping[str, Numeric],
    again: Numeric,
    seconds: Mapping[str, Numeric],
) -> Numeric:
    """Seconds of a step's parameter and gradient traffic that do not hide behind the passes.

    A second of work hides one second of traffic: what tp, cp and ep hide behind is taken.
    """
    m = layout.num_microbatches
    zero, last = np.asarray(layout.zero_stage), synchronisation_window(layout)
    times = occurrences(ctx, layout)
    share = ctx.software.coefficients.dp_overlap_fraction
    hides = share * layout.overlap_dp * (num_layers(ctx.model) / layout.pp)
    tp_forward = hidden["tp_forward"] / (1 + again[3])
    cp_forward = hidden["cp_forward"] / (1 + again[1])
    tp_backward = again[3] * tp_forward + hidden["tp_backward"] + hidden["tp_beside"]
    cp_backward = again[1] * cp_forward + hidden["cp_backward"]
    taken_forward = tp_forward + cp_forward + hidden["ep"] / 2
    taken_backward = tp_backward + cp_backward + hidden["ep"] / 2
    free_forward = np.maximum(0.0, mean.forward - taken_forward)
    free_backward = np.maximum(0.0, mean.backward + mean.recompute - taken_backward)
    behind = np.where(zero >= 2, m, last) * hides * free_backward
    mirrors: tuple[str, ...] = ()
    if not ctx.software.only_1f1b:
        # gradients of weights come last, and no collective runs beside them
        apart = (zero < 2) & waits_for_weights(layout)
        behind = np.where(apart, hides * mean.gemm_weights, behind)
        mirrors = ("mirror",) if "dualpipe" in ctx.software.schedules else ()
    prefixes = ("", "expert_") if ctx.model.moe is not None else ("",)

    def moved(*names: str) -> Numeric:
        channels_ = [prefix + name for prefix in prefixes for name in names]
        return sum(times[name] * seconds[name] for name in channels_)

    return beyond(
        moved("gather_forward"), np.where(zero == 3, m, last) * hides * free_forward
    ) + beyond(
        moved("gather_backward", "reduce", "replicate", *mirrors),
        behind,
    )


def exchange_seconds(kind: Kind, seconds: Mapping[str, Numeric]) -> Numeric:
    """A kind's share of the exchanges with experts, hidden or not, of a mean layer."""
    if kind.experts is None:
        return 0.0
    names = ("ep_forward", "ep_backward", "etp_forward", "etp_backward")
    return kind.share * sum(seconds[name] for name in names)


def exchange_exposed(
    ctx: CostContext,
    layout: LayoutLike,
    kinds: Sequence[Kind],
    works: Sequence[Work],
    seconds: Mapping[str, Numeric],
) -> tuple[Numeric, ...]:
    """Exposed seconds of each kind of layer's exchanges with its experts, one micro-batch.

    Overlapped (`overlap` ep), one micro-batch's exchanges run beside another's passes.
    """
    # the first micro-batch's exchanges have no other to run beside
    others = 1.0 - 1.0 / layout.num_microbatches
    if not ctx.software.only_1f1b:
        beside_others = overlapped_share(layout)
        others = np.where(np.isin(layout.schedule_index, BOTH_WAYS), 1.0, others)
    share = ctx.software.coefficients.dp_overlap_fraction * layout.overlap_ep * others
    found: list[Numeric] = []
    for kind, work in zip(kinds, works, strict=True):
        if kind.experts is None:
            found.append(0.0)
            continue
        busy = seconds["ep_forward"] + seconds["ep_backward"]
        spread = seconds["etp_forward"] + seconds["etp_backward"]
        shown = beside(busy, share * (work.forward + work.backward))
        if not ctx.software.only_1f1b:
            shown = busy - beside_others * (busy - shown)
        found.append(shown + spread)
    return tuple(found)


def layer_exposed(
    ctx: CostContext,
    layout: LayoutLike,
    work: Work,
    costs: Mapping[str, GroupCost],
    seconds: Mapping[str, Numeric],
) -> dict[str, Numeric]:
    """Exposed seconds of a layer's tensor- and context-parallel channels, one micro-batch.

    Chunked tensor parallelism pipelines with the matmuls it feeds; what belongs to the weight
    and data gradients runs beside them. A context-parallel ring travels behind attention's
    blocks, all but the first; state-space layers wait for their exchanges.
    """
    again = recomputed_shares(ctx, layout)
    share = ctx.software.coefficients.tp_overlap_fraction
    found: dict[str, Numeric] = {}
    for name, behind in (
        ("tp_forward", work.gemm_forward * (1 + again[3])),
        ("tp_backward", work.gemm_backward),
    ):
        outside: Numeric = 0.0
        for busy in costs[name].busy_seconds[1:]:
            outside = np.maximum(outside, busy)
        found[name] = chunked(seconds[name], outside, layout.tp, share * behind, layout.overlap_tp)
    found["tp_beside"] = beyond(seconds["tp_beside"], share * work.gemm_backward)
    blocks = 1.0 - 1.0 / ring_members(layout)
    attention = {
        "cp_forward": work.attention_forward * (1 + again[1]),
        "cp_backward": work.attention_backward,
    }
    for name, behind in attention.items():
        found[name] = beyond(seconds[name], blocks * behind)
    if ctx.model.mamba is not None:
        found |= {name: seconds[name] for name in ("cp_scan_forward", "cp_scan_backward")}
    if "cp_inner" in seconds:
        found["cp_inner"] = seconds["cp_inner"]
    return found
