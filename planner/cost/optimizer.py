"""Seconds of the optimizer's step, and of what travels to the host's memory and back."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.cost.activations import layer_activations
from planner.cost.context import CostContext
from planner.cost.memory import own_parameters, state_shards
from planner.cost.overlap import beyond
from planner.cost.traffic import Parameters
from planner.cost.ways import offloads_activations, offloads_any, offloads_optimizer
from planner.cost.work import Work
from planner.layouts.layout import LayoutLike, Numeric

STATE_TRAFFIC_BYTES = 26.0
"""Per parameter: FP32 master and two moments read and written (24), 16-bit weight written (2)."""

GRADIENT_PASSES = 4.0
"""Times a gradient passes HBM in a step: its norm, its scaling in and out, the update."""


def optimizer_seconds(ctx: CostContext, layout: LayoutLike, parameters: Parameters) -> Numeric:
    """Adam over a rank's share of the states, and clearing its gradients, at the HBM rate."""
    zero = np.asarray(layout.zero_stage)
    shards = state_shards(ctx, layout)
    passes = STATE_TRAFFIC_BYTES + GRADIENT_PASSES * ctx.software.gradient_bytes

    def moved(number: Numeric, shards: Numeric) -> Numeric:
        own = number / np.where(zero >= 1, shards, 1)
        gradients = number / np.where(zero >= 2, shards, 1) * ctx.software.gradient_bytes
        return own * passes + gradients

    total = moved(parameters.dense, shards)
    if ctx.model.moe is not None:
        total = total + moved(parameters.experts, layout.tp * shards / (layout.etp * layout.ep))
    if not offloads_any(layout):
        return total / ctx.hbm_bytes_per_second
    own = own_parameters(ctx, layout, parameters)
    device = np.where(offloads_optimizer(layout), total - own * STATE_TRAFFIC_BYTES, total)
    away = offloads_optimizer(layout) * host_step_seconds(ctx, own)
    return device / ctx.hbm_bytes_per_second + away


def host_step_seconds(ctx: CostContext, own: Numeric) -> Numeric:
    """Adam on the host over a rank's share of the states, in pieces that travel beside it.

    Gradients come over the link, weights go back in 16 bits, the host reads gradients and reads and
    writes the states: the longest of the three sets the pace (ZeRO-Offload, arXiv 2101.06840,
    section 5; Megatron-Core's overlap_cpu_optimizer_d2h_h2d).
    """
    host = ctx.accelerator.host
    if host is None:
        return np.inf * np.ones_like(own)
    gradients = float(ctx.software.gradient_bytes)
    return own * max(
        gradients / host.achieved_link,
        ctx.element_bytes / host.achieved_link,
        (STATE_TRAFFIC_BYTES + 2 * gradients) / host.achieved_memory,
    )


def offload_exposed(ctx: CostContext, layout: LayoutLike, works: Sequence[Work]) -> list[Numeric]:
    """Exposed seconds of a layer's kept activations on their way to the host and back, by kind.

    They leave beside the forward pass of a layer and come back beside the backward pass of another,
    what it runs again included.
    """
    host = ctx.accelerator.host
    if host is None:
        return [np.inf for _ in works]
    found: list[Numeric] = []
    for kind, work in zip(ctx.kinds, works, strict=True):
        kept = layer_activations(ctx, layout, kind.blocks).kept
        sent = offloads_activations(layout) * kept / host.achieved_link
        found.append(beyond(sent, work.forward) + beyond(sent, work.backward + work.recompute))
    return found
