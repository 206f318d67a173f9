"""Stages of a pipeline: which count, what is in flight, how long it idles.

How layers are split over stages is said in `planner.layouts.stage_split`. Of the folded schedules
(`planner.cost.folds`) a rank holds two stages of the way that micro-batches take. The closed forms
here equal the schedules played out (`planner.layouts.timeline`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.layouts.layout import SCHEDULES, LayoutLike, Numeric
from planner.layouts.stage_split import (
    NONE,
    Cut,
    Reserved,
    by_stage,
    default_stage_layers,
    first_extra,
    given_stages,
    placed_layers,
)


def stage_classes(
    num_layers: int,
    layout: Cut,
    reserved: Reserved = NONE,
    leading: int = 0,
    latest: bool = False,
) -> Numeric:
    """Stages among which the fullest is: first, first with the most layers, last; or (`latest`) the
    one that the step waits for: of those with as many layers the last.

    Where the ends have fewer for what they hold besides, one beside them too; where the model's
    first `leading` layers are of a lighter kind, the stages that hold them and the first without.
    Returns stage numbers, shape (3, …) or more.
    """
    placed = placed_layers(num_layers, layout, reserved)
    first_chunk = first_extra(placed, layout)
    last = layout.pp - 1 + 0 * first_chunk
    with_most = first_chunk % layout.pp
    if latest:
        extra = placed % (layout.pp * layout.vp)
        with_most = np.where(extra > 0, (first_chunk + extra - 1) % layout.pp, last)
    found = [np.zeros_like(with_most), with_most, last]
    if latest and any(reserved):
        found.append(np.maximum(last - 1, 0))
    elif reserved[0]:
        found.append(np.minimum(1, last))
    if leading:
        found += [np.minimum(stage, last) for stage in range(1, leading + 1)]
    return np.stack(found)


def stages(
    num_layers: int,
    layout: Cut,
    reserved: Reserved = NONE,
    leading: int = 0,
    latest: bool = False,
) -> tuple[Numeric, Numeric]:
    """Stage numbers and their layers, stages first: shapes (S, …).

    Every stage of a layout that names its split, else the classes among which the fullest is, or
    the one that the step waits for.
    """
    if layout.stage_layers is None:
        stage = stage_classes(num_layers, layout, reserved, leading, latest)
        return stage, default_stage_layers(num_layers, layout, stage, reserved)
    layers = np.array(given_stages(layout))
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


def first_layer(num_layers: int, layout: Cut, stage: Numeric) -> Numeric:
    """Layers before those of `stage`, without virtual stages."""
    if layout.stage_layers is not None:
        return np.concatenate([[0], np.cumsum(layout.stage_layers)[:-1]])[np.asarray(stage)]
    base, extra = num_layers // layout.pp, num_layers % layout.pp
    return base * stage + np.clip(stage - (layout.pp - extra) // 2, 0, extra)


def leading_layers(
    num_leading: int,
    num_layers: int,
    layout: Cut,
    stage: Numeric,
    layers: Numeric,
    reserved: Reserved = NONE,
) -> Numeric:
    """How many of the model's first `num_leading` layers a stage with `layers` layers holds.

    Of a split that is given by stages, virtual stages are taken for one.
    """
    if layout.stage_layers is not None:
        split = np.array(layout.stage_layers)
        leading = np.clip(num_leading - (np.cumsum(split) - split), 0, split)
        return np.minimum(by_stage(leading, layout)[np.asarray(stage)], layers)
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


def microbatches_in_flight(layout: LayoutLike, stage: Numeric) -> Numeric:
    """Micro-batches of all its layers whose activations `stage` holds at its peak.

    1F1B: min(m, pp − stage). Interleaved: the warm-up of 2·(pp − stage − 1) + (vp − 1)·pp chunks
    and the one running, of 1/vp of its layers (Narayanan et al. 2021, §2.2; Korthikanti et al.
    2022, §4.2.3). Where exchanges with experts run beside another micro-batch's passes, that one
    is in flight too.
    """
    m, pp, vp, beside = layout.num_microbatches, layout.pp, layout.vp, layout.overlap_ep
    plain = np.minimum(m, pp - stage + beside)
    chunks = np.minimum(m * vp, 2 * (pp - stage - 1) + (vp - 1) * pp + 1 + beside)
    return np.where(vp > 1, chunks / vp, plain)


def zero_bubble_in_flight(layout: LayoutLike) -> Numeric:
    """The same of zb-h1 and interleaved-zb, on every stage: as many as the first holds under 1F1B,
    what it has ahead and the weight gradients that wait."""
    return np.minimum(layout.num_microbatches, layout.pp)


def bubble_slots(layout: LayoutLike) -> Numeric:
    """Idle micro-batch slots of a step under 1F1B and interleaved: (pp − 1)/vp."""
    return (layout.pp - 1) / layout.vp


@dataclass(frozen=True, slots=True)
class Passes:
    """Seconds of a micro-batch's passes: forward, gradients of inputs, gradients of weights."""

    forward: Numeric
    inputs: Numeric
    weights: Numeric

    def __add__(self, other: Passes) -> Passes:
        return Passes(
            self.forward + other.forward, self.inputs + other.inputs, self.weights + other.weights
        )

    def times(self, number: Numeric) -> Passes:
        """The passes of so many."""
        return Passes(number * self.forward, number * self.inputs, number * self.weights)


def idle_seconds(
    layout: LayoutLike, stage: Numeric, slot: Numeric, mean_slot: Numeric, shorter: Numeric
) -> Numeric:
    """Idle seconds of a step's slowest rank under 1F1B and interleaved.

    stage, slot, shorter: ranks among which the slowest is (first axis), seconds of a micro-batch
    on each, and of the shorter of its layers' passes. A step lasts at least as long as rank s
    works, what comes before it (passes of the s ranks ahead, one micro-batch, both ways) and what
    it waits for those behind it. It waits for the first micro-batch to come back while it runs
    pp − 1 − s forward passes ahead, or so for the last; or for both, when others take its place:

        m·t_s + 1/vp · (s·t' + max(0, n·t' − min(m − 1, n)·shorter_s, n·min(t', 2t' − t_s)))

    with n = pp − 1 − s and t' the mean slot of the other ranks; the last with m > n. The step is
    the longest of these. Of equal stages (pp − 1)/vp slots are idle. Exact for 1F1B if the other
    ranks are alike; of interleaved chunks, which differ among themselves, an estimate.
    """
    m, pp = layout.num_microbatches, layout.pp
    behind = pp - 1 - stage
    others = (pp * mean_slot - slot) / np.maximum(np.asarray(pp) - 1, 1)
    once = behind * others - np.minimum(m - 1, behind) * shorter
    twice = np.where(m > behind, behind * np.minimum(others, 2 * others - slot), 0.0)
    waits = stage * others + np.maximum(0.0, np.maximum(once, twice))
    work = m * slot
    return np.max(work + waits / layout.vp, axis=0) - np.max(work, axis=0)


def least_idle_seconds(
    layout: LayoutLike, slowest: Numeric, mean_slot: Numeric, shorter: Numeric, slope: Numeric
) -> Numeric:
    """Idle seconds, beside m of its slots, of every split whose slowest stage has at least these.

    shorter: at most this share of a slot is its shorter pass; slope: what a second of the slowest
    stage's work adds to the step, 1 but for what the host then starts unseen. With a slowest slot
    t of at least the mean t̄ and t' the mean slot of the others, `idle_seconds` leaves at least

        1/vp · max(0, (pp − 1)(2t' − t))                    with m ≥ pp
        1/vp · max(0, (pp − 1)·t' − (m − 1)·shorter·t)      with fewer

    both of the form max(0, a·t̄ − b·t). As t grows work grows by m·slope, waiting shrinks by b/vp
    until there is none: what is lost till then is taken off.
    """
    m, pp = layout.num_microbatches, np.asarray(layout.pp)
    ahead = np.where(m >= pp, 2 * pp, pp)
    steep = np.where(m >= pp, pp + 1.0, 1.0 + (m - 1) * shorter)
    waiting = np.maximum(0.0, ahead * mean_slot - steep * slowest)
    lost = np.minimum(0.0, m * slope - steep / layout.vp)
    return waiting / layout.vp + lost * waiting / steep


def bubble_seconds(layout: LayoutLike, idle: Numeric, passes: Passes) -> Numeric:
    """Idle seconds of a step under any schedule, of equal stages but for the first two.

    idle: those under 1F1B and interleaved; passes: seconds F, B and W of a micro-batch on a rank,
    with nothing beside another micro-batch's passes.

        1f1b, interleaved       idle
        zb-h1, interleaved-zb   1/vp · ((pp − 1)(F + B) − min(m − 1, pp − 1)·min(F, B, W)); with
                                enough micro-batches and W ≤ F, B the (pp − 1)(F + B − W) of Qi et
                                al. 2023, table 1
        zb-v                    1/2 · max((pp − 1)·E, 2(pp − 1)(E − W), E + (pp − 2)·W), E the
                                greater of F and B
        dualpipe, dualpipev     (r − 1)(F + max(0, B − W)) + max((r − 1)F, (r − 1)B − F), r half
                                the stages of a way, F, B and W of one of them: where all are equal
                                the (r − 1)(F&B + B − 3W) of DeepSeek-V3, table 2, whose B is both
                                gradients
    """
    m, pp, vp = layout.num_microbatches, layout.pp, layout.vp
    f, b, w = passes.forward / vp, passes.inputs / vp, passes.weights / vp
    hidden = np.minimum(m - 1, pp - 1) * np.minimum(np.minimum(f, b), w)
    split = (pp - 1) * (f + b) - hidden
    e = np.maximum(f, b)
    turning = np.maximum((pp - 1) * e, np.maximum(2 * (pp - 1) * (e - w), e + (pp - 2) * w))
    rest = pp * vp / 2 - 1
    both = rest * (f + np.maximum(0.0, b - w)) + np.maximum(rest * f, rest * b - f)
    found = np.choose(layout.schedule_index, [idle, idle, split, split, turning, both, both])
    return np.where(np.asarray(pp) > 1, found, 0.0)


DIRECTIONS = np.array([1 + (name == "dualpipe") for name in SCHEDULES])
"""Ways that micro-batches take through the ranks, by schedule; every stage lives on as many."""


def overlapped_share(layout: LayoutLike) -> Numeric:
    """Share of the passes that run beside another micro-batch's, where exchanges overlap.

    dualpipe and dualpipev start and end with passes alone: of the M slots of a stage's forward and
    backward pass all but r + 2 on the longest path, r half the stages of a way.
    """
    chunks = layout.num_microbatches * layout.vp
    alone = (layout.pp * layout.vp / 2 + 2) / chunks
    return 1.0 - np.isin(layout.schedule_index, BOTH_WAYS) * alone


BOTH_WAYS = [SCHEDULES.index(name) for name in ("dualpipe", "dualpipev")]
"""Schedules whose forward and backward passes of two micro-batches run beside each other."""


INTERLEAVED = [SCHEDULES.index(name) for name in ("interleaved", "interleaved-zb")]
"""Schedules that pass the chunks of a rank in turn, pp micro-batches each."""


def runs_in_rounds(layout: LayoutLike) -> Numeric:
    """Whether ranks pass their chunks in turn, with micro-batches enough for a round."""
    rounds = layout.num_microbatches >= np.asarray(layout.pp)
    return rounds & np.isin(layout.schedule_index, INTERLEAVED) & (layout.vp > 1)


def waits_for_weights(layout: LayoutLike) -> Numeric:
    """Whether the gradients of the last micro-batch's weights come after all else."""
    return np.asarray(layout.schedule_index) >= SCHEDULES.index("zb-h1")


def synchronisation_window(layout: LayoutLike) -> Numeric:
    """Micro-batches during whose passes a stage's gradients can be reduced.

    The last one, whose backward pass completes them layer by layer. With virtual stages a chunk is
    complete while the last pp micro-batches still pass the stage's other chunks: all of theirs
    but one chunk's.
    """
    together = np.minimum(layout.pp, layout.num_microbatches)
    return np.where(np.asarray(layout.vp) > 1, together * (1.0 - 1.0 / layout.vp), 1.0)
