"""What offloading to the host's memory means: what lives there, and what the host's step takes.

Optimizer states that live on the host are stepped by its processors. Activations travel to the host
on the forward pass and back on the backward pass (`planner.cost.overlap.offload_exposed`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.cost.context import CostContext
from planner.layouts.keys import OFFLOADS
from planner.layouts.layout import LayoutLike
from planner.layouts.numeric import Mask, Numeric

_OFFLOADS_OPTIMIZER = np.isin(OFFLOADS, ("optimizer", "optimizer+activations"))
_OFFLOADS_ACTIVATIONS = np.isin(OFFLOADS, ("activations", "optimizer+activations"))
_OFFLOADS_NOTHING = np.isin(OFFLOADS, ("none",))

RESIDENT_LAYERS = 2
"""Layers whose kept activations stay on the device where activations are offloaded: one is computed
on while the other travels."""

FP32_ADAM_BYTES = 12.0
"""Optimizer states of a parameter where a profile says nothing: FP32 master weight and Adam's two
moments in FP32."""


def optimizer_bytes(ctx: CostContext) -> float:
    """Bytes of a parameter's optimizer states: its master weight and moments."""
    stated = ctx.software.optimizer_bytes
    return FP32_ADAM_BYTES if stated is None else float(stated)


def state_traffic_bytes(ctx: CostContext) -> float:
    """What an optimizer step moves per parameter: states read and written, 16-bit weight written;
    26 bytes with FP32 states."""
    return 2 * optimizer_bytes(ctx) + 2.0


def offloads_optimizer(layout: LayoutLike) -> Mask:
    """Whether optimizer states live in the host's memory."""
    offloads: Mask = _OFFLOADS_OPTIMIZER[layout.offload_index]
    return offloads


def offloads_activations(layout: LayoutLike) -> Mask:
    """Whether what layers keep for their backward pass lives in the host's memory."""
    offloads: Mask = _OFFLOADS_ACTIVATIONS[layout.offload_index]
    return offloads


def offloads_nothing(layout: LayoutLike) -> Mask:
    """Whether everything stays on the device."""
    stays: Mask = _OFFLOADS_NOTHING[layout.offload_index]
    return stays


def offloads_any(layout: LayoutLike) -> bool:
    """Whether any row offloads: where none does, nothing of it need be costed."""
    return not bool(np.all(offloads_nothing(layout)))


@dataclass(frozen=True, slots=True)
class KeptActivations:
    """Bytes of what layers keep for their backward pass, by where they are."""

    on_device: Numeric
    on_host: Numeric


def place_activations(
    layout: LayoutLike, kept_bytes: Numeric, layer_bytes: Numeric
) -> KeptActivations:
    """Kept activations on the device and on the host.

    Of what is offloaded RESIDENT_LAYERS stay, `layer_bytes` each.
    """
    resident = RESIDENT_LAYERS * layer_bytes
    stay = np.where(offloads_activations(layout), np.minimum(kept_bytes, resident), kept_bytes)
    return KeptActivations(on_device=stay, on_host=kept_bytes - stay)


def host_step_seconds(ctx: CostContext, own: Numeric) -> Numeric:
    """Seconds of Adam on the host over the `own` parameters whose states a rank has.

    It runs in pieces, while the next ones travel: gradients come over the link, weights go back in
    16 bits, the host reads gradients and reads and writes the states. The longest of the three sets
    the pace (ZeRO-Offload, arXiv 2101.06840, section 5; Megatron-Core's
    overlap_cpu_optimizer_d2h_h2d). Infinite where the host is unknown.
    """
    host = ctx.accelerator.host
    if host is None:
        return np.inf * np.ones_like(own)
    gradients = float(ctx.software.gradient_bytes)
    return own * max(
        gradients / host.achieved_link,
        ctx.element_bytes / host.achieved_link,
        (state_traffic_bytes(ctx) + 2 * gradients) / host.achieved_memory,
    )
