"""What a layout's ways of running mean in numbers: rings, and what lives on the host."""

from __future__ import annotations

import numpy as np

from planner.layouts.layout import CP_KINDS, LayoutLike, Numeric


def offloads_any(layout: LayoutLike) -> bool:
    """Whether any row offloads: where none does, nothing of it need be costed."""
    found: bool = np.any(layout.offload_index).item()
    return found


def offloads_optimizer(layout: LayoutLike) -> Numeric:
    """Whether optimizer states live in the host's memory."""
    return np.asarray(layout.offload_index) % 2 == 1


def offloads_activations(layout: LayoutLike) -> Numeric:
    """Whether what layers keep for their backward pass lives in the host's memory."""
    return np.asarray(layout.offload_index) >= 2


def ring_members(layout: LayoutLike) -> Numeric:
    """Ranks that keys and values are sent round: 1 where they are gathered or exchanged."""
    kind = np.asarray(layout.cp_kind_index)
    outer = np.where(kind == CP_KINDS.index("hierarchical"), layout.cp // layout.cp_a2a, 1)
    return np.where(kind == CP_KINDS.index("ring"), layout.cp, outer)
