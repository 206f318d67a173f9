"""Pipeline schedules played out, by hand and against the closed forms that costs are made of."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pytest

from planner.cost.passes import Passes
from planner.cost.pipeline import (
    StageSlots,
    bubble_seconds,
    bubble_slots,
    idle_seconds,
    microbatches_in_flight,
    overlapped_share,
    runs_both_passes,
    runs_in_rounds,
    synchronisation_window,
    waits_for_weights,
)
from planner.cost.stages import StageLayers, rank_stages
from planner.layouts.keys import SCHEDULES, V_SHAPED
from planner.layouts.layout import Layout
from planner.layouts.schedules import Operation, Pipeline
from planner.layouts.timeline import ChunkPasses, Timeline, play
from tests.expert_scenarios import staged_context

SPLIT = ("zb-h1", "interleaved-zb", "zb-v")
BOTH = ("dualpipe", "dualpipev")
CASES = 500
"""Random pipelines of each schedule."""


class Case(NamedTuple):
    layout: Layout
    forward: float
    inputs: float
    weights: float

    @property
    def passes(self) -> Passes:
        return Passes(self.forward, self.inputs, self.weights)

    @property
    def slot(self) -> float:
        return self.forward + self.inputs + self.weights


def cases(schedule: str, number: int = CASES) -> list[Case]:
    """Random pipelines of equal stages, F, B and W of a rank's whole share of a micro-batch."""
    random = np.random.default_rng(SCHEDULES.index(schedule))
    found = []
    for _ in range(number):
        pp = int(random.integers(2, 9))
        vp = {"interleaved": 0, "interleaved-zb": 0}.get(schedule, 2 if schedule in V_SHAPED else 1)
        vp = vp or int(random.integers(2, 5))
        m = int(random.integers(1, 25))
        if vp > 1 and schedule not in V_SHAPED:
            m = pp * int(random.integers(1, 5))
        if schedule == "zb-v":
            m = 2 * pp - 1 + int(random.integers(0, 12))
        if schedule in BOTH:
            pp += pp % 2 if schedule == "dualpipe" else 0
            m = 2 * pp + 2 * int(random.integers(0, 8)) + (schedule == "dualpipev")
        forward, inputs, weights = random.uniform(0.2, 3.0, 3)
        if schedule == "zb-v":  # its closed form is of gradients no faster than the forward pass
            forward, inputs = sorted((forward, inputs))
        layout = Layout(pp=pp, vp=vp, num_microbatches=m, schedule=schedule)
        found.append(Case(layout, float(forward), float(inputs), float(weights)))
    return found


def bubble(case: Case) -> float:
    """The closed form, of a rank that is like the others."""
    layout, alike = case.layout, np.full(case.layout.pp, case.slot)
    shorter = np.minimum(case.forward, case.inputs + case.weights)
    ranks = StageSlots(np.arange(layout.pp), alike, shorter, case.slot)
    idle = idle_seconds(layout, ranks)
    return float(bubble_seconds(layout, idle, case.passes))


def pipeline_of(layout: Layout) -> Pipeline:
    return Pipeline(layout.schedule, layout.pp, layout.vp, layout.num_microbatches)


def equal_chunks(case: Case, hidden: float = 0.0) -> ChunkPasses:
    count, vp = case.layout.pp * case.layout.vp, case.layout.vp
    return ChunkPasses(
        [case.forward / vp] * count, [case.inputs / vp] * count, [case.weights / vp] * count,
        hidden=hidden,
    )  # fmt: skip


def played(case: Case, hidden: float = 0.0) -> Timeline:
    return play(pipeline_of(case.layout), equal_chunks(case, hidden))


# ---------------------------------------------------------------- orders


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_pass_runs_once_on_its_rank(schedule: str) -> None:
    for case in cases(schedule, 40):
        pipeline = pipeline_of(case.layout)
        ran: Counter[tuple[str, int, int]] = Counter()
        for rank, order in enumerate(pipeline.orders()):
            for operation in (operation for slot in order for operation in slot):
                assert pipeline.rank_of(operation.chunk, operation.microbatch) == rank
                kinds = ("input", "weight") if operation.kind == "backward" else (operation.kind,)
                ran.update((kind, operation.chunk, operation.microbatch) for kind in kinds)
        passes = pipeline.num_chunks * pipeline.num_microbatches
        assert len(ran) == 3 * passes
        assert set(ran.values()) == {1}


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_nothing_starts_before_its_input_or_while_its_rank_works(schedule: str) -> None:
    random = np.random.default_rng(0)
    for case in cases(schedule, 20):
        pipeline = pipeline_of(case.layout)
        count = pipeline.num_chunks
        passes = ChunkPasses(*random.uniform(0.1, 2.0, (3, count)), boundary=0.3, hidden=0.05)
        found = play(pipeline, passes)
        ends = {span.operation: span.end for spans in found.ranks for span in spans}
        for spans in found.ranks:
            for before, span in pairwise(spans):
                assert span.start >= before.end or span.start == before.start
            for span in spans:
                kind, chunk, microbatch = span.operation
                if kind == "forward" and chunk > 0:
                    needed = [Operation("forward", chunk - 1, microbatch)]
                elif kind == "forward":
                    continue
                elif kind == "weight":
                    needed = [Operation("input", chunk, microbatch)]
                elif chunk == count - 1:
                    needed = [Operation("forward", chunk, microbatch)]
                else:
                    both = ("input", "backward")
                    needed = [Operation(kind, chunk + 1, microbatch) for kind in both]
                source = next(operation for operation in needed if operation in ends)
                ranks = {pipeline.rank_of(o.chunk, microbatch) for o in (source, span.operation)}
                assert span.start >= ends[source] + 0.3 * (len(ranks) > 1) - 1e-9


# ---------------------------------------------------------------- by hand

DRAWN = {
    ("1f1b", 3, 1, 4): """
        012....aa3bb.cc.dd
        .01..aa2bb3cc.dd..
        ..0aa1bb2cc3dd....""",
    # micro-batches 0 and 1 pass both chunks of a rank, then 2 and 3
    ("interleaved", 2, 2, 4): """
        01012.aa3bb2aa3bb.cc.ddccdd
        .010aa1bb2aa3bb2cc3ddccdd..""",
    # rank 1 keeps one gradient of weights for later, rank 2 two
    ("zb-h1", 3, 1, 5): """
        012..aA3bB4cCdDeE
        .01.a2bA3cB4dCeDE
        ..0a1b2cA3dB4eCDE""",
    ("interleaved-zb", 2, 2, 4): """
        0101.aA2bB3aA2bB3cCdDcCdD
        .010a1bA2aB3bA2cB3dCcDdCD""",
    # the second rank turns: 00 is micro-batch 0 on its first and its second chunk
    ("zb-v", 2, 2, 4): """
        0120aA1bB3aA2cCbB3dDcCdD.
        .0011aA2aA2bB3bB3cCcddCDD""",
    # 0 to 3 enter at the first rank, 4 to 7 at the last; & is a forward beside a backward pass
    ("dualpipe", 4, 1, 8): """
        0124eE5&&&.&&&gg.&&&hhcCdD
        .04152ee&&&&&&&&&ggcc.hdHD
        .40516aa&&&&&&&&&ccgg.dhDH
        4560aA1&&&.&&&cc.&&&ddgGhH""",
    # the first half of dualpipe's ranks, whose middle turns
    ("dualpipev", 2, 2, 4): """
        0120aA1&&&.&&&cc.&&&ddcCdD
        .00112aa&&&&&&&&&cccc.ddDD""",
}
"""A line per rank, a character per second of passes of one second: digits are forward passes of
micro-batches, small letters gradients of inputs (twice as long with those of weights in one),
capitals those of weights."""


def drawing(timeline: Timeline) -> str:
    lines = []
    for spans in timeline.ranks:
        line = ["."] * round(timeline.seconds)
        for span in spans:
            kind, _, microbatch = span.operation
            letters = {"forward": "01234567", "weight": "ABCDEFGH"}.get(kind, "abcdefgh")
            for second in range(round(span.start), round(span.end)):
                line[second] = letters[microbatch] if line[second] == "." else "&"
        lines.append("".join(line))
    return "\n".join(lines)


@pytest.mark.parametrize(("schedule", "pp", "vp", "m"), DRAWN)
def test_drawn_by_hand(schedule: str, pp: int, vp: int, m: int) -> None:
    ones = [1.0] * pp * vp
    found = play(Pipeline(schedule, pp, vp, m), ChunkPasses(ones, ones, ones))
    drawn = DRAWN[schedule, pp, vp, m].strip().splitlines()
    assert drawing(found).splitlines() == [line.strip() for line in drawn]


def test_boundaries_are_waited_for_on_other_ranks_alone() -> None:
    """Two ranks, one micro-batch: forward there, back, with two boundaries; a V turns without."""
    passes = ChunkPasses([1.0, 1.0], [1.0, 1.0], [1.0, 1.0], boundary=0.5)
    assert play(Pipeline("1f1b", 2, 1, 1), passes).seconds == pytest.approx(1 + 0.5 + 3 + 0.5 + 2)
    turn = ChunkPasses([1.0, 1.0], [1.0, 1.0], [1.0, 1.0], boundary=0.5)
    assert play(Pipeline("zb-v", 1, 2, 1), turn).seconds == pytest.approx(6)


# ---------------------------------------------------------------- the bubble


def test_every_schedule_is_played() -> None:
    assert set(SCHEDULES) == {schedule for schedule, *_ in DRAWN}


@pytest.mark.slow
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_bubble_of_equal_stages(schedule: str) -> None:
    for case in cases(schedule):
        idle = played(case).idle_seconds
        found = bubble(case)
        expected = pytest.approx(found, abs=1e-9)
        assert idle == (expected,) * case.layout.pp, case


@pytest.mark.parametrize("schedule", BOTH)
def test_passes_beside_each_other(schedule: str) -> None:
    """What a pair hides is saved by all pairs but a few at the ends."""
    random = np.random.default_rng(1)
    for case in cases(schedule, 100):
        shortest = min(case.forward, case.inputs, case.weights) / case.layout.vp
        hidden = float(random.uniform(0.0, 0.5)) * shortest
        saved = played(case).seconds - played(case, hidden).seconds
        slots = case.layout.num_microbatches * case.layout.vp
        assert saved == pytest.approx(float(overlapped_share(case.layout)) * slots * hidden)


@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1"])
def test_published_bubbles(schedule: str) -> None:
    """Qi et al. 2023, table 1: (p − 1)(F + B + W) under 1F1B, (p − 1)(F + B − W) under ZB-H1."""
    f, b, w = 1.0, 1.1, 0.7
    sign = {"1f1b": 1, "zb-h1": -1}[schedule]
    layout = Layout(pp=8, num_microbatches=24, schedule=schedule)
    assert bubble(Case(layout, f, b, w)) == pytest.approx(7 * (f + b + sign * w))


@pytest.mark.parametrize("stages", [4, 8, 16])
def test_bubble_of_dualpipe_as_published(stages: int) -> None:
    """DeepSeek-V3, table 2, and the table of its repository: (PP/2 − 1)(F&B + B − 3W), B being both
    gradients, of stages whose three passes take as long; DualPipeV has it on half the ranks."""
    expected = (stages // 2 - 1) * (3 + 2 - 3)
    both = Layout(pp=stages, num_microbatches=2 * stages, schedule="dualpipe")
    assert bubble(Case(both, 1.0, 1.0, 1.0)) == expected
    turned = Layout(pp=stages // 2, vp=2, num_microbatches=stages, schedule="dualpipev")
    assert bubble(Case(turned, 2.0, 2.0, 2.0)) == expected


def test_zero_bubble_v_at_equal_passes_waits_for_its_ranks_to_start_alone() -> None:
    layout = Layout(pp=6, vp=2, num_microbatches=24, schedule="zb-v")
    starts = [
        spans[0].start for spans in play(pipeline_of(layout), ChunkPasses(*[[1.0] * 12] * 3)).ranks
    ]
    assert starts == [0, 1, 2, 3, 4, 5]
    assert bubble(Case(layout, 2.0, 2.0, 2.0)) == max(starts)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_bubbles_are_never_negative(schedule: str) -> None:
    for case in cases(schedule, 200):
        assert bubble(case) >= 0.0


def test_apart_gradients_of_weights_never_make_a_bubble_longer() -> None:
    for case in cases("1f1b"):
        m = max(case.layout.num_microbatches, 1)
        apart = Layout(pp=case.layout.pp, num_microbatches=m, schedule="zb-h1")
        found = bubble(case._replace(layout=apart))
        assert found <= bubble(case)


def test_no_pipeline_has_no_bubble() -> None:
    assert bubble(Case(Layout(), 1.0, 1.0, 1.0)) == 0.0


@pytest.mark.parametrize("m", [1, 2, 3, 5])
def test_bubble_does_not_depend_on_the_number_of_micro_batches(m: int) -> None:
    layout = Layout(pp=4, num_microbatches=m)
    assert bubble_slots(layout) == pytest.approx(played(Case(layout, 0.3, 0.3, 0.4)).seconds - m)


# ---------------------------------------------------------------- uneven stages


def uneven(schedule: str, number: int, lone: bool) -> list[tuple[Layout, np.ndarray, np.ndarray]]:
    """Layouts and seconds of each chunk's forward and backward pass; of 1F1B one rank may differ
    from the others, alone, or all from each other."""
    random = np.random.default_rng(7)
    found = []
    for case in cases(schedule, number):
        layout = case.layout
        count, m = layout.pp * layout.vp, layout.num_microbatches
        slots = np.ones(count) if lone else random.uniform(0.5, 1.5, count)
        if lone:
            slots[random.integers(count)] += random.uniform(0.0, 1.5)
        share = random.uniform(0.2, 0.5)
        layout = Layout(pp=layout.pp, vp=layout.vp, num_microbatches=max(m, layout.pp))
        found.append((layout, share * slots, (1 - share) * slots))
    return found


def whole_step(layout: Layout, forward: np.ndarray, backward: np.ndarray) -> float:
    """The closed form: slots of the slowest rank and what it idles."""
    by_rank = [
        np.array([part[rank :: layout.pp].sum() for rank in range(layout.pp)])
        for part in (forward + backward, np.minimum(forward, backward))
    ]
    slot, shorter = by_rank
    idle = idle_seconds(layout, StageSlots(np.arange(layout.pp), slot, shorter, slot.mean()))
    return float(layout.num_microbatches * slot.max() + idle)


def errors(schedule: str, lone: bool) -> np.ndarray:
    found = []
    for layout, forward, backward in uneven(schedule, 200, lone):
        passes = ChunkPasses(forward.tolist(), backward.tolist(), [0.0] * len(forward))
        played_out = play(pipeline_of(layout), passes).seconds
        found.append(whole_step(layout, forward, backward) / played_out - 1.0)
    return np.array(found)


def test_step_of_stages_of_which_one_is_slower() -> None:
    """Of 1F1B, one whose rank the others are alike on both sides of, to the mean of the others."""
    found = errors("1f1b", lone=True)
    assert np.abs(found).mean() < 2e-3
    assert np.abs(found).max() < 0.05


@pytest.mark.parametrize(
    ("schedule", "lone", "mean", "most"),
    [("1f1b", False, 0.006, 0.08), ("interleaved", True, 0.03, 0.15),
     ("interleaved", False, 0.04, 0.2)],
)  # fmt: skip
def test_step_of_uneven_stages(schedule: str, lone: bool, mean: float, most: float) -> None:
    found = errors(schedule, lone)
    assert np.abs(found).mean() < mean
    assert np.abs(found).max() < most


def test_a_slow_first_stage_hides_what_comes_behind_it() -> None:
    """By hand, two ranks of 4 and 2 seconds, half either way, and three micro-batches: the first
    never waits but for the first micro-batch's second half."""
    passes = ChunkPasses([2.0, 1.0], [2.0, 1.0], [0.0, 0.0])
    layout = Layout(pp=2, num_microbatches=3)
    assert play(pipeline_of(layout), passes).seconds == 12.0
    assert whole_step(layout, np.array([2.0, 1.0]), np.array([2.0, 1.0])) == 12.0


# ---------------------------------------------------------------- in flight


def played_in_flight(timeline: Timeline, rank: int) -> dict[int, int]:
    """Micro-batches of each chunk in flight at the rank's peak, the fewest of its first chunk."""
    count: Counter[int] = Counter()
    best: dict[int, int] = {}
    spans = sorted(
        [(s.start, 1, s) for s in timeline.ranks[rank] if s.operation.kind == "forward"]
        + [
            (s.end, 0, s)
            for s in timeline.ranks[rank]
            if s.operation.kind in ("backward", "weight")
        ],
        key=lambda change: change[:2],
    )
    first = min(s.operation.chunk for *_, s in spans)
    for _, starts, span in spans:
        count[span.operation.chunk] += 1 if starts else -1
        now = (sum(count.values()), -count[first])
        if now > (sum(best.values()), -best.get(first, 0)):
            best = dict(count)
    return best


def peak_in_flight(timeline: Timeline, rank: int) -> int:
    return max(count for _, count in timeline.in_flight(rank))


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_activations_in_flight(schedule: str) -> None:
    """Of every chunk, where one rank holds two stages; else of all chunks, which are alike."""
    for case in cases(schedule, 60):
        layout, timeline = case.layout, played(case)
        chunks = layout.pp * layout.vp
        for rank in range(layout.pp):
            peak = peak_in_flight(timeline, rank)
            ranks = StageLayers(np.array(rank), np.array(layout.vp))
            stages = rank_stages(staged_context(chunks), layout, ranks)
            expected = sum(
                float(microbatches_in_flight(layout, stage, False) * sum(stage.layers_by_kind))
                for stage in stages
            )
            assert expected == pytest.approx(peak), (case, rank)
            if schedule in (*V_SHAPED, "dualpipe"):
                by_chunk = played_in_flight(timeline, rank)
                for stage in stages:
                    assert by_chunk.get(int(stage.stage), 0) == int(
                        microbatches_in_flight(layout, stage, False)
                    ), (case, rank)


def test_activations_in_flight_as_published() -> None:
    """Table 2 of DeepSeek-V3: PP + 1 stages' under DualPipe, PP under ZB1P and 1F1B; interleaved,
    (1 + (pp − 1)/(pp·vp)) times as much (Korthikanti et al. 2022, §4.2.3)."""

    def most(layout: Layout) -> int:
        ones = [1.0] * layout.pp * layout.vp
        timeline = play(pipeline_of(layout), ChunkPasses(ones, ones, ones))
        return max(peak_in_flight(timeline, rank) for rank in range(layout.pp))

    assert most(Layout(pp=8, num_microbatches=24, schedule="dualpipe")) == 9
    assert most(Layout(pp=4, vp=2, num_microbatches=24, schedule="dualpipev")) == 9
    assert most(Layout(pp=8, num_microbatches=24, schedule="zb-h1")) == 8
    assert most(Layout(pp=8, num_microbatches=24)) == 8
    assert most(Layout(pp=4, vp=2, num_microbatches=16)) == 8 * (1 + 3 / 8)


# ---------------------------------------------------------------- gradients


def test_gradients_are_complete_in_the_last_micro_batch() -> None:
    assert synchronisation_window(Layout(pp=4, num_microbatches=8)) == 1.0


@pytest.mark.parametrize(("pp", "vp"), [(2, 2), (4, 2), (4, 3), (3, 4)])
def test_chunks_complete_one_after_another(pp: int, vp: int) -> None:
    """What a stage still runs backwards once its first chunk has seen every micro-batch."""
    layout = Layout(pp=pp, vp=vp, num_microbatches=2 * pp)
    for order in pipeline_of(layout).orders():
        backwards = [op for slot in order for op in slot if op.kind == "backward"]
        ends = {op.chunk: k for k, op in enumerate(backwards)}
        left = len(backwards) - 1 - min(ends.values())
        assert synchronisation_window(layout) == pytest.approx(left / vp)


@pytest.mark.parametrize("schedule", [*SPLIT, *BOTH])
def test_weights_are_last(schedule: str) -> None:
    """A rank ends with the gradients of weights that its last stage waits for."""
    for case in cases(schedule, 40):
        for order in pipeline_of(case.layout).orders():
            assert order[-1][-1].kind == "weight"


# ---------------------------------------------------------------- what is true of a schedule


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_what_is_true_of_a_schedule_is_seen_in_its_orders(schedule: str) -> None:
    """Passes at the same time, gradients of weights apart, and chunks passed in rounds."""
    case = next(c for c in cases(schedule, 40) if c.layout.num_microbatches >= c.layout.pp > 2)
    slots = [slot for order in pipeline_of(case.layout).orders() for slot in order]
    assert runs_both_passes(case.layout) == any(len(slot) == 2 for slot in slots)
    apart = any(operation.kind == "weight" for slot in slots for operation in slot)
    assert waits_for_weights(case.layout) == apart
    rounds = schedule in ("interleaved", "interleaved-zb")
    assert runs_in_rounds(case.layout) == rounds
