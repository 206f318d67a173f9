"""Software, clocks and clusters fitted at once: known numbers found again, slopes by hand."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from planner.evidence.maintenance import joint_fit
from planner.evidence.maintenance.joint_fit import (
    Linearised,
    Number,
    Numbers,
    clock_of,
    cluster_ranges,
    errors_at,
    fit_jointly,
    linearise,
    moves,
    numbers_of,
    rounded,
    seconds_with,
    shipped_numbers,
    solve,
    span_of,
    with_numbers,
)
from planner.evidence.published_runs import PublishedRun
from planner.evidence.row_jobs import job_of
from planner.evidence.row_predictions import Prediction, predict
from planner.inputs.quantities import Figure
from planner.problem.scenario import Scenario
from tests.evidence.made_runs import FEW

MakeRun = Callable[..., PublishedRun]

DP = Number("software", "megatron-core", "dp_overlap_fraction")
UNEXPLAINED = Number("software", "megatron-core", "unexplained_seconds")
COLLECTIVE = Number("cluster", "usual", "collective_seconds")
STRAGGLER = Number("cluster", "usual", "straggler_fraction_per_doubling")
CLOCK = Number("clock", "h100-sxm-80gb", "bf16")

ALONE = {"tp_comm_overlap(userbuffers)": False}


@pytest.fixture
def rows(make_run: MakeRun) -> list[Prediction]:
    return [predict(job_of(make_run(id=f"{n}", source=f"s/{n % 2}", **job)))
            for n, job in enumerate(FEW)]  # fmt: skip


def measured_with(rows: Sequence[Prediction], numbers: Numbers) -> list[Prediction]:
    """The rows as if measured at what other numbers predict."""
    made = []
    for row in rows:
        std = row.run.std.replace(iter_time_s=seconds_with(row, numbers))
        made.append(replace(row, job=replace(row.job, run=row.run.replace(std=std))))
    return made


def by_hand(scenario: Scenario, straggler: float, clock: float) -> Scenario:
    """The scenario with two numbers, through values that are validated."""
    topology = scenario.topology
    overheads = topology.overheads.replace(
        straggler_fraction_per_doubling=Figure(straggler, "test", "fitted")
    )
    accelerator = topology.accelerator
    clocks = {**accelerator.sustained_fraction, "bf16": Figure(clock, "test", "fitted")}
    accelerator = accelerator.replace(sustained_fraction=clocks)
    return scenario.replace(topology=topology.replace(overheads=overheads, accelerator=accelerator))


def test_other_numbers_cost_as_other_files_would(rows: list[Prediction]) -> None:
    for row in rows:
        scenario = by_hand(row.scenario, 0.012, 0.7)
        expected = predict(replace(row.job, scenario=scenario)).step_seconds
        assert seconds_with(row, {STRAGGLER: 0.012, CLOCK: 0.7}) == pytest.approx(expected)
        assert with_numbers(row.scenario, {}) == row.scenario


def test_a_job_depends_on_its_profile_its_cluster_and_one_clock(rows: list[Prediction]) -> None:
    numbers = numbers_of(rows[0].scenario)
    assert {n.owner for n in numbers if n.holder == "software"} == {"megatron-core"}
    assert [n for n in numbers if n.holder == "clock"] == [CLOCK]
    assert {COLLECTIVE, STRAGGLER} == {n for n in numbers if n.holder == "cluster"}


def test_dies_of_one_sort_share_their_clock(make_run: MakeRun) -> None:
    blackwell = [clock_of(job_of(make_run(gpu=gpu)).scenario) for gpu in ("B200-SXM", "GB300")]
    assert blackwell == [Number("clock", "blackwell", "bf16")] * 2
    low = [clock_of(job_of(make_run(gpu=gpu, dtype="mxfp8")).scenario)
           for gpu in ("B200-SXM", "GB300")]  # fmt: skip
    assert low == [Number("clock", "b200-sxm-180gb", "fp8"), Number("clock", "gb300", "fp8")]


def test_slopes_are_relative_changes(rows: list[Prediction]) -> None:
    """A second more of unexplained time is 1 / step of the step, to first order exactly so."""
    numbers = shipped_numbers(rows)
    model = linearise(rows, numbers, [UNEXPLAINED, CLOCK])
    seconds = np.array([row.step_seconds for row in rows])
    change = joint_fit.STEP_SHARE * span_of(UNEXPLAINED).scale
    assert model.slopes[:, 0] == pytest.approx(np.log1p(change / seconds) / change)
    assert (model.slopes[:, 1] < 0).all()  # a faster clock makes steps shorter
    assert model.off == pytest.approx(np.log(seconds / [row.measured_seconds for row in rows]))


def test_some_rows_and_columns_of_a_model(rows: list[Prediction]) -> None:
    model = linearise(rows, shipped_numbers(rows), [UNEXPLAINED, CLOCK])
    kept = [row.source == "s/0" for row in rows]
    part = model.only(kept, [CLOCK])
    assert part.slopes[:, 0].tolist() == model.slopes[np.flatnonzero(kept), 1].tolist()
    assert {row.source for row in part.rows} == {"s/0"}
    assert len(part.off) == sum(kept)


def test_a_linear_problem_is_solved(rows: list[Prediction]) -> None:
    """Errors that are linear and vanish at a point inside all ranges: it is found."""
    columns = [DP, UNEXPLAINED, CLOCK]
    at = {DP: 0.5, UNEXPLAINED: 0.1, CLOCK: 0.8}
    truth = np.array([0.7, 0.2, 0.7])
    slopes = np.random.default_rng(0).normal(size=(len(rows), 3)) * [0.3, 2.0, 1.0]
    off = slopes @ (np.array([at[c] for c in columns]) - truth)
    found = solve(Linearised(rows, at, columns, off, slopes), at, prior_scales=1e4)
    assert [found[c] for c in columns] == pytest.approx(truth, abs=0.03)
    near = solve(Linearised(rows, at, columns, off, slopes), at, prior_scales=1e-3)
    assert [near[c] for c in columns] == pytest.approx([at[c] for c in columns], abs=1e-2)


def test_numbers_stay_within_reach_and_range(rows: list[Prediction]) -> None:
    slopes = np.ones((len(rows), 1))
    model = Linearised(rows, {DP: 0.9}, [DP], np.full(len(rows), -3.0), slopes)
    assert solve(model, {DP: 0.9})[DP] == pytest.approx(1.0)
    assert solve(model, {DP: 0.9}, reach_scales=0.2)[DP] == pytest.approx(0.9 + 0.2 * 0.25)


def test_known_numbers_are_found_again(rows: list[Prediction]) -> None:
    start = shipped_numbers(rows)
    truth = {**start, CLOCK: start[CLOCK] * 0.9, UNEXPLAINED: 0.3}
    made = measured_with(rows, truth)
    fitted = fit_jointly(made, start, prior=start)
    before, after = (np.abs(errors_at(made, numbers)).mean() for numbers in (start, fitted))
    assert after < before / 2  # few rows do not outweigh what pulls at the prior
    assert before > 0.05
    assert start[CLOCK] > fitted[CLOCK]
    assert start[UNEXPLAINED] < fitted[UNEXPLAINED]


def test_rows_that_agree_move_nothing(rows: list[Prediction]) -> None:
    start = shipped_numbers(rows)
    made = measured_with(rows, start)
    assert fit_jointly(made, start, prior=start) == start


def test_clusters_differ_by_what_their_rows_say(
    make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three sources of tp 8 whose collectives take 0, 30 and 120 us more than shipped."""
    monkeypatch.setattr(joint_fit, "MIN_CLUSTER_ROWS", 2)
    base = [predict(job_of(make_run(id=f"{n}", tp=8, pp=1, vp=1, dp=2, n_gpus=16, gbs=gbs,
                                    grad_accum=gbs // 2, seq_len=2048, overlap=ALONE)))
            for n, gbs in enumerate((16, 64))]  # fmt: skip
    start = shipped_numbers(base)
    made = []
    for source, more in (("a", 0.0), ("b", 30e-6), ("c", 120e-6)):
        slow = measured_with(base, {**start, COLLECTIVE: start[COLLECTIVE] + more})
        made += [replace(row, job=replace(row.job, run=row.run.replace(source=f"{source}/x")))
                 for row in slow]  # fmt: skip
    found = cluster_ranges(made, start)["collective_seconds"]
    assert (found.value, found.clusters) == (rounded(start[COLLECTIVE]), 3)
    assert found.low <= found.value
    assert start[COLLECTIVE] + 60e-6 < found.high < start[COLLECTIVE] + 120e-6


def test_what_moves_no_row(make_run: MakeRun) -> None:
    row = predict(job_of(make_run(tp=1, pp=1, vp=1, dp=16, n_gpus=16, sp=False, grad_accum=4)))
    numbers = shipped_numbers([row])
    assert not moves([row], numbers, "tp_overlap_fraction")
    assert moves([row], numbers, "unexplained_seconds")


def test_files_have_four_digits() -> None:
    assert (rounded(0.123456), rounded(3e-27), rounded(3.86123e-05)) == (0.1235, 0.0, 3.861e-05)
