"""A pipeline over a step: micro-batches in flight, idle time, and what runs at the same time.

The closed forms here equal the schedules played out (`planner.layouts.timeline`). Which stages a
rank holds is said in `planner.cost.stages`; folded schedules (dualpipe, zb-v, dualpipev) lay two on
it. What is true of a schedule is looked up by its name, in tables with one entry per schedule.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.cost.passes import Passes
from planner.cost.stages import IS_FOLDED, RankStage
from planner.layouts.keys import SCHEDULES
from planner.layouts.layout import LayoutLike
from planner.layouts.numeric import Boolean, Integer, Mask, Numeric

_RUNS_BOTH_PASSES = np.isin(SCHEDULES, ("dualpipe", "dualpipev"))
_PASSES_CHUNKS_IN_TURN = np.isin(SCHEDULES, ("interleaved", "interleaved-zb"))
_SPLITS_BACKWARD = ~np.isin(SCHEDULES, ("1f1b", "interleaved"))
_IS_ZERO_BUBBLE = np.isin(SCHEDULES, ("zb-h1", "interleaved-zb"))
_STARTS_BACKWARD_EARLY = np.isin(SCHEDULES, ("zb-v",))


def runs_both_passes(layout: LayoutLike) -> Mask:
    """Whether forward and backward passes of two micro-batches run at the same time on a rank."""
    both: Mask = _RUNS_BOTH_PASSES[layout.schedule_index]
    return both


def waits_for_weights(layout: LayoutLike) -> Mask:
    """Whether the gradients of weights run apart, those of the last micro-batch after all else."""
    waits: Mask = _SPLITS_BACKWARD[layout.schedule_index]
    return waits


def runs_in_rounds(layout: LayoutLike) -> Boolean:
    """Whether ranks pass their chunks in turn, with enough micro-batches (pp) for a round."""
    in_turn: Mask = _PASSES_CHUNKS_IN_TURN[layout.schedule_index]
    rounds = layout.num_microbatches >= np.asarray(layout.pp)
    in_rounds: Boolean = rounds & in_turn & (layout.vp > 1)
    return in_rounds


# ---------------------------------------------------------------- in flight


def microbatches_in_flight(layout: LayoutLike, stage: RankStage, only_1f1b: bool) -> Numeric:
    """Micro-batches whose activations of this stage a rank holds at its peak.

    Under a folded schedule, as many as the stages from this one to the pipeline's end: PP + 1 of
    both stages together (DeepSeek-V3, table 2). only_1f1b: no other schedule need be looked at.
    """
    if only_1f1b:
        return in_flight_1f1b(layout, stage.stage)
    schedule, m = np.asarray(layout.schedule_index), layout.num_microbatches
    folded, ahead = IS_FOLDED[schedule], stage.pipeline.pp - stage.stage
    if stage.is_second:
        second: Numeric = folded * np.minimum(m, ahead)
        return second
    # zb-v starts to pass back with one forward pass less ahead than dualpipev
    ahead = ahead - _STARTS_BACKWARD_EARLY[schedule]
    plain = np.where(
        _IS_ZERO_BUBBLE[schedule],
        in_flight_zero_bubble(layout),
        in_flight_1f1b(layout, stage.stage),
    )
    return np.where(folded, np.minimum(m, ahead), plain)


def in_flight_1f1b(layout: LayoutLike, stage: Numeric) -> Numeric:
    """The same under 1F1B and interleaved, of all the stage's layers.

    1F1B: min(m, pp − stage). Interleaved: the warm-up of 2·(pp − stage − 1) + (vp − 1)·pp chunks
    and the one running, of 1/vp of its layers (Narayanan et al. 2021, §2.2; Korthikanti et al.
    2022, §4.2.3). Dispatch and combine that overlap another micro-batch's passes add none: one more
    chunk runs ahead, and the next one runs while one is passed back, layer by layer
    (`planner.cost.activations.beside_bytes`).
    """
    m, pp, vp = layout.num_microbatches, layout.pp, layout.vp
    plain = np.minimum(m, pp - stage)
    chunks = np.minimum(m * vp, 2 * (pp - stage - 1) + (vp - 1) * pp + 1)
    return np.where(vp > 1, chunks / vp, plain)


def in_flight_zero_bubble(layout: LayoutLike) -> Integer:
    """The same under zb-h1 and interleaved-zb, on every stage: as many as the first holds under
    1F1B, what it has ahead and the weight gradients that wait."""
    return np.minimum(layout.num_microbatches, layout.pp)


# ---------------------------------------------------------------- idle time


def bubble_slots(layout: LayoutLike) -> Numeric:
    """Idle micro-batch slots of a step under 1F1B and interleaved: (pp − 1)/vp."""
    return (layout.pp - 1) / layout.vp


@dataclass(frozen=True, slots=True)
class StageSlots:
    """Seconds of one micro-batch on ranks among which the slowest is; shapes (S, …), mean (…).

    stage: the ranks' numbers; slots: both passes on each; shorter: the shorter of the two, of its
    layers; mean: of all ranks.
    """

    stage: Numeric
    slots: Numeric
    shorter: Numeric
    mean: Numeric


def idle_seconds(layout: LayoutLike, ranks: StageSlots) -> Numeric:
    """Idle seconds of a step's slowest rank under 1F1B and interleaved, shape (…).

    A step lasts at least as long as rank s works, what comes before it (passes of the s ranks
    ahead, one micro-batch, both directions) and what it waits for those behind it. It waits for the
    first micro-batch to come back while it runs pp − 1 − s forward passes ahead, or so for the
    last; or for both, when others take its place:

        m·t_s + 1/vp · (s·t' + max(0, n·t' − min(m − 1, n)·shorter_s, n·min(t', 2t' − t_s)))

    with n = pp − 1 − s and t' the mean slot of the other ranks; the last with m > n. The step is
    the longest of these. Of equal stages (pp − 1)/vp slots are idle. Exact for 1F1B if the other
    ranks are alike; of interleaved chunks, which differ among themselves, an estimate.
    """
    m, pp, stage, slots = layout.num_microbatches, layout.pp, ranks.stage, ranks.slots
    behind = pp - 1 - stage
    others = (pp * ranks.mean - slots) / np.maximum(np.asarray(pp) - 1, 1)
    once = behind * others - np.minimum(m - 1, behind) * ranks.shorter
    twice = np.where(m > behind, behind * np.minimum(others, 2 * others - slots), 0.0)
    waits = stage * others + np.maximum(0.0, np.maximum(once, twice))
    work = m * slots
    idle: Numeric = np.max(work + waits / layout.vp, axis=0) - np.max(work, axis=0)
    return idle


@dataclass(frozen=True, slots=True)
class SlowestSlot:
    """What is known of the slowest stage of every split; shapes (…).

    slowest, mean: seconds of a micro-batch on it at least, and on all stages in the mean.
    shorter_share: of a slot, its shorter pass at most. slope: what a second of its work adds to the
    step: 1, but for what the host then launches unseen.
    """

    slowest: Numeric
    mean: Numeric
    shorter_share: Numeric
    slope: Numeric


def min_idle_seconds(layout: LayoutLike, slot: SlowestSlot) -> Numeric:
    """Lower bound of `idle_seconds`, with m of its slots, over splits whose slowest stage has at
    least this slot.

    With a slowest slot t of at least the mean t̄ and t' the mean slot of the others, `idle_seconds`
    leaves at least

        1/vp · max(0, (pp − 1)(2t' − t))                    with m ≥ pp
        1/vp · max(0, (pp − 1)·t' − (m − 1)·shorter·t)      with fewer

    both of the form max(0, a·t̄ − b·t). As t grows work grows by m·slope, waiting shrinks by b/vp
    until there is none: what is lost till then is taken off.
    """
    m, pp = layout.num_microbatches, np.asarray(layout.pp)
    ahead = np.where(m >= pp, 2 * pp, pp)
    steep = np.where(m >= pp, pp + 1.0, 1.0 + (m - 1) * slot.shorter_share)
    waiting = np.maximum(0.0, ahead * slot.mean - steep * slot.slowest)
    lost = np.minimum(0.0, m * slot.slope - steep / layout.vp)
    return waiting / layout.vp + lost * waiting / steep


def bubble_seconds(layout: LayoutLike, idle: Numeric, passes: Passes) -> Numeric:
    """Idle seconds of a step under any schedule, of equal stages but for the first two.

    idle: those under 1F1B and interleaved; passes: seconds F, B and W of a micro-batch on a rank,
    with nothing at the same time as another micro-batch's passes.

        1f1b, interleaved       idle
        zb-h1, interleaved-zb   1/vp · ((pp − 1)(F + B) − min(m − 1, pp − 1)·min(F, B, W)); with
                                enough micro-batches and W ≤ F, B the (pp − 1)(F + B − W) of Qi et
                                al. 2023, table 1
        zb-v                    1/2 · max((pp − 1)·E, 2(pp − 1)(E − W), E + (pp − 2)·W), E the
                                greater of F and B
        dualpipe, dualpipev     (r − 1)(F + max(0, B − W)) + max((r − 1)F, (r − 1)B − F), r half
                                the stages that a micro-batch passes, F, B and W of one of them:
                                where all are equal the (r − 1)(F&B + B − 3W) of DeepSeek-V3,
                                table 2, whose B is both gradients
    """
    m, pp, vp = layout.num_microbatches, layout.pp, layout.vp
    f, b, w = passes.forward / vp, passes.input_gradients / vp, passes.weight_gradients / vp
    hidden = np.minimum(m - 1, pp - 1) * np.minimum(np.minimum(f, b), w)
    zero_bubble = (pp - 1) * (f + b) - hidden
    e = np.maximum(f, b)
    turning = np.maximum((pp - 1) * e, np.maximum(2 * (pp - 1) * (e - w), e + (pp - 2) * w))
    others = pp * vp / 2 - 1  # r − 1
    dualpipe = others * (f + np.maximum(0.0, b - w)) + np.maximum(others * f, others * b - f)
    by_schedule = {
        "1f1b": idle,
        "interleaved": idle,
        "zb-h1": zero_bubble,
        "interleaved-zb": zero_bubble,
        "zb-v": turning,
        "dualpipe": dualpipe,
        "dualpipev": dualpipe,
    }
    bubble = np.choose(layout.schedule_index, [by_schedule[name] for name in SCHEDULES])
    return np.where(np.asarray(pp) > 1, bubble, 0.0)


# ---------------------------------------------------------------- at the same time


def overlapped_share(layout: LayoutLike) -> Numeric:
    """Share of the passes that run at the same time as another micro-batch's, where that hides
    dispatch and combine.

    dualpipe and dualpipev start and end with one pass at a time: of the M slots of a stage's
    forward and backward pass all but r + 2 on the longest path, r half the stages that a
    micro-batch passes.
    """
    chunks = layout.num_microbatches * layout.vp
    one_at_a_time = (layout.pp * layout.vp / 2 + 2) / chunks
    return 1.0 - runs_both_passes(layout) * one_at_a_time


def synchronisation_window(layout: LayoutLike) -> Numeric:
    """Micro-batches during whose passes a stage's gradients can be reduced.

    The last one, whose backward pass completes them layer by layer. With virtual stages a chunk is
    complete while the last pp micro-batches still pass the stage's other chunks: all of theirs
    but one chunk's.
    """
    together = np.minimum(layout.pp, layout.num_microbatches)
    return np.where(np.asarray(layout.vp) > 1, together * (1.0 - 1.0 / layout.vp), 1.0)
