"""Stages of a pipeline: which count, what is in flight, how long it idles.

How layers are split over stages is said in `planner.stages`.
"""

from __future__ import annotations

import numpy as np

from planner.layout import LayoutLike, Numeric
from planner.stages import NONE, Reserved, default_stage_layers, first_extra, placed_layers


def stage_classes(
    num_layers: int, layout: LayoutLike, reserved: Reserved = NONE, leading: int = 0
) -> Numeric:
    """Stages among which the slowest and the fullest are: first, first with the most layers, last.

    Where the first has fewer for what it holds besides, the second too; where the model's first
    `leading` layers are of a lighter kind, the stages that hold them and the first without.
    Returns stage numbers, shape (3, …) or more.
    """
    first_chunk = first_extra(placed_layers(num_layers, layout, reserved), layout)
    fullest = first_chunk % layout.pp
    last = layout.pp - 1 + 0 * fullest
    found = [np.zeros_like(fullest), fullest, last]
    if reserved[0]:
        found.append(np.minimum(1, last))
    if leading:
        found += [np.minimum(stage, last) for stage in range(1, leading + 1)]
    return np.stack(found)


def stages(
    num_layers: int, layout: LayoutLike, reserved: Reserved = NONE, leading: int = 0
) -> tuple[Numeric, Numeric]:
    """Stage numbers and their layers, stages first: shapes (S, …).

    Every stage of a layout that names its split, else the classes among which the slowest and the
    fullest are.
    """
    if layout.stage_layers is None:
        stage = stage_classes(num_layers, layout, reserved, leading)
        return stage, default_stage_layers(num_layers, layout, stage, reserved)
    layers = np.array(layout.stage_layers)
    shape = (-1,) + (1,) * np.ndim(layout.pp)
    return np.arange(len(layers)).reshape(shape), layers.reshape(shape)


def every_stage(num_layers: int, layout: LayoutLike) -> tuple[Numeric, Numeric]:
    """All stages, one without virtual stages each, and their layers: shapes (S, …).

    Rows of a table with fewer stages than others repeat their last one.
    """
    number = np.max(np.asarray(layout.pp))
    stage = np.arange(number).reshape((-1,) + (1,) * np.ndim(layout.pp))
    stage = np.minimum(stage, np.asarray(layout.pp) - 1)
    if layout.stage_layers is not None:
        return stage, np.array(layout.stage_layers)[stage]
    return stage, default_stage_layers(num_layers, layout, stage)


def first_layer(num_layers: int, layout: LayoutLike, stage: Numeric) -> Numeric:
    """Layers before those of `stage`, without virtual stages."""
    if layout.stage_layers is not None:
        return np.concatenate([[0], np.cumsum(layout.stage_layers)[:-1]])[np.asarray(stage)]
    base, extra = num_layers // layout.pp, num_layers % layout.pp
    return base * stage + np.clip(stage - (layout.pp - extra) // 2, 0, extra)


def leading_layers(
    num_leading: int,
    num_layers: int,
    layout: LayoutLike,
    stage: Numeric,
    layers: Numeric,
    reserved: Reserved = NONE,
) -> Numeric:
    """How many of the model's first `num_leading` layers a stage with `layers` layers holds.

    Of a split that is given, virtual stages are taken for one.
    """
    if layout.stage_layers is not None:
        before = np.concatenate([[0], np.cumsum(layout.stage_layers)[:-1]])
        start = before[np.asarray(stage)]
        return np.clip(num_leading - start, 0, layers)
    placed = placed_layers(num_layers, layout, reserved)
    chunks = layout.pp * layout.vp
    base, first = placed // chunks, first_extra(placed, layout)
    extra = placed - base * chunks
    held: Numeric = 0
    for turn in range(num_leading):  # no chunk is empty: more turns hold none
        chunk = stage + turn * layout.pp
        start = base * chunk + np.clip(chunk - first, 0, extra)
        size = base + ((first <= chunk) & (chunk < first + extra))
        if reserved[0]:
            ahead = reserved[0] * (placed > num_layers)
            start, size = np.maximum(start - ahead, 0), size - ahead * (chunk == 0)
        held = held + np.clip(num_leading - start, 0, size) * (turn < layout.vp)
    return np.minimum(held, layers)


def layers_in_flight(layout: LayoutLike, stage: Numeric, layers: Numeric) -> Numeric:
    """Layers whose activations `stage` holds at its peak.

    1F1B: min(m, pp − stage) micro-batches of all its layers. Interleaved: the warm-up of
    2·(pp − stage − 1) + (vp − 1)·pp chunks and the one running, of 1/vp of its layers
    (Narayanan et al. 2021, §2.2; Korthikanti et al. 2022, §4.2.3). Where exchanges with experts run
    beside another micro-batch's passes, that one is in flight too.
    """
    m, pp, vp, beside = layout.num_microbatches, layout.pp, layout.vp, layout.overlap_ep
    plain = np.minimum(m, pp - stage + beside)
    chunks = np.minimum(m * vp, 2 * (pp - stage - 1) + (vp - 1) * pp + 1 + beside)
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
