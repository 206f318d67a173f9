"""Stages of a pipeline: how layers are split, what is in flight, how long it idles.

Chunks are numbered in model order, C = pp·vp of them; stage i holds chunks i, i+pp, i+2·pp, …
The default split gives every chunk ⌊L/C⌋ layers and the remainder, one each, to the middle ones:
the first also holds the embedding, the last the head and the loss.
"""

from __future__ import annotations

import numpy as np

from planner.layout import Layout, LayoutLike, Numeric


def stage_classes(num_layers: int, layout: LayoutLike) -> Numeric:
    """Stages among which the slowest and the fullest are: first, first with the most layers, last.

    Returns stage numbers, shape (3, …).
    """
    first_extra = _first_extra(num_layers, layout) % layout.pp
    return np.stack([np.zeros_like(first_extra), first_extra, layout.pp - 1 + 0 * first_extra])


def stages(num_layers: int, layout: LayoutLike) -> tuple[Numeric, Numeric]:
    """Stage numbers and their layers, stages first: shapes (S, …).

    Every stage of a layout that names its split, else the three classes among which the slowest
    and the fullest are.
    """
    if layout.stage_layers is None:
        stage = stage_classes(num_layers, layout)
        return stage, default_stage_layers(num_layers, layout, stage)
    layers = np.array(layout.stage_layers)
    shape = (-1,) + (1,) * np.ndim(layout.pp)
    return np.arange(len(layers)).reshape(shape), layers.reshape(shape)


def layers_by_stage(num_layers: int, layout: Layout) -> list[int]:
    """Layers of every stage of one layout."""
    if layout.stage_layers is not None:
        return list(layout.stage_layers)
    layers = default_stage_layers(num_layers, layout, np.arange(layout.pp))
    return [int(count) for count in np.broadcast_to(layers, (layout.pp,))]


def default_stage_layers(num_layers: int, layout: LayoutLike, stage: Numeric) -> Numeric:
    """Layers of `stage` under the default split; shapes broadcast."""
    chunks = layout.pp * layout.vp
    base = num_layers // chunks
    start = _first_extra(num_layers, layout)
    end = start + (num_layers - base * chunks)
    # chunk numbers c ≡ stage (mod pp) with start ≤ c < end
    extra = (end - 1 - stage) // layout.pp - (start - 1 - stage) // layout.pp
    return base * layout.vp + extra


def _first_extra(num_layers: int, layout: LayoutLike) -> Numeric:
    chunks = layout.pp * layout.vp
    return np.asarray((chunks - num_layers % chunks) // 2)


def layers_in_flight(layout: LayoutLike, stage: Numeric, layers: Numeric) -> Numeric:
    """Layers whose activations `stage` holds at its peak.

    1F1B: min(m, pp − stage) micro-batches of all its layers. Interleaved: the warm-up of
    2·(pp − stage − 1) + (vp − 1)·pp chunks and the one running, of 1/vp of its layers
    (Narayanan et al. 2021, §2.2; Korthikanti et al. 2022, §4.2.3).
    """
    m, pp, vp = layout.num_microbatches, layout.pp, layout.vp
    plain = np.minimum(m, pp - stage)
    chunks = np.minimum(m * vp, 2 * (pp - stage - 1) + (vp - 1) * pp + 1)
    return layers * np.where(vp > 1, chunks / vp, plain)


def bubble_slots(layout: LayoutLike) -> Numeric:
    """Idle micro-batch slots of a step: (pp − 1)/vp."""
    return (layout.pp - 1) / layout.vp


def synchronisation_window(layout: LayoutLike) -> Numeric:
    """Micro-batches during whose passes a stage's gradients can be reduced.

    The last one, whose backward pass completes them layer by layer. With virtual stages a chunk is
    complete while the last pp micro-batches still pass the stage's other chunks: all of theirs
    but one chunk's.
    """
    together = np.minimum(layout.pp, layout.num_microbatches)
    return np.where(np.asarray(layout.vp) > 1, together * (1.0 - 1.0 / layout.vp), 1.0)
