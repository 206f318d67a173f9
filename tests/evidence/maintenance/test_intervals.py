"""Rows of known errors give known intervals; the shipped ones hold what was left out of fits."""

from collections.abc import Callable
from dataclasses import replace
from statistics import median

import numpy as np
import pytest

from planner.cost import prediction_intervals as intervals
from planner.cost.prediction_intervals import KINDS, PredictionErrors
from planner.errors import InputError
from planner.evidence.fitted_files import intervals_yaml
from planner.evidence.maintenance.intervals import (
    COVERAGE,
    MIN_ROWS,
    SHRINK_ROWS,
    IntervalCalibration,
    fit_intervals,
    intervals_by_kind,
    step_ratios,
    weighted_quantile,
    widening,
    without_own_clock,
    without_own_coefficients,
)
from planner.evidence.maintenance.profiles import coefficients_of_others
from planner.evidence.profile_fit import with_coefficients
from planner.evidence.published_runs import PUBLISHED_RUNS, PublishedRun, read_runs
from planner.evidence.row_jobs import job_of
from planner.evidence.row_predictions import Prediction, Selection, in_half, predict
from planner.evidence.validate_runs import coverage
from planner.inputs.files import data_root, names
from planner.inputs.quantities import Figure
from planner.inputs.values import load, parse
from planner.problem.hardware import Accelerator

MakeRun = Callable[..., PublishedRun]
Rows = Callable[..., list[Prediction]]

OLD, YOUNG = "data-parallel", "model-parallel"


@pytest.fixture
def rows(make_run: MakeRun) -> Rows:
    """Rows of one kind whose measured / predicted is as given, of so many sources in turn."""
    base = predict(job_of(make_run()))

    def make(ratios: np.ndarray, kind: str = OLD, sources: int = 9) -> list[Prediction]:
        made = []
        for number, ratio in enumerate(ratios):
            run = make_run(source=f"s/{number % sources}", seconds=base.step_seconds * ratio)
            made.append(replace(base, job=replace(base.job, run=run), interval_kind=kind))
        return made

    return make


def ends(found: list[Prediction]) -> dict[str, tuple[float, float]]:
    made = intervals_by_kind(found, step_ratios)
    return {kind: (float(end.low), float(end.high)) for kind, end in made.items()}


def test_ends_are_the_quantiles(rows: Rows) -> None:
    """45 values: a tenth of the weight ends in the fifth from either end."""
    found = ends(rows(np.exp(np.linspace(-0.2, 0.24, 45))))
    assert found[OLD] == pytest.approx((np.exp(-0.16), np.exp(0.20)), rel=1e-3)


def test_weighted_quantiles_count_a_value_as_often_as_it_weighs() -> None:
    rng = np.random.default_rng(1)
    values, weights = rng.normal(size=40), rng.integers(1, 6, 40).astype(float)
    low, high = (weighted_quantile(values, weights, share) for share in (0.1, 0.9))
    assert low == weighted_quantile(values, 3 * weights, 0.1)
    for share in (0.1, 0.9):
        plain = weighted_quantile(values, np.ones(40), share)
        assert plain == pytest.approx(np.quantile(values, share, method="hazen"))
    assert low < high


def test_ends_stand_at_the_ends_of_clusters(rows: Rows) -> None:
    """Steps 10 % shorter and 20 % longer at the ends: what is left of the quantiles."""
    made = [replace(row, cluster_factors=(0.9, 1.2))
            for row in rows(np.exp(np.linspace(-0.2, 0.44, 45)))]  # fmt: skip
    step = 0.64 / 44
    assert ends(made)[OLD] == pytest.approx(
        (np.exp(-0.2 + 4 * step) / 0.9, np.exp(0.44 - 4 * step) / 1.2), rel=1e-3
    )
    table = intervals_by_kind(made, step_ratios)
    errors = intervals.shipped().replace(step_seconds=table)
    inside = coverage(made, [], errors)["step_seconds"][OLD]
    assert inside.inside_fraction == pytest.approx(37 / 45, abs=0.05)  # two lie on the ends


def test_a_source_counts_as_the_root_of_its_rows(rows: Rows) -> None:
    """Ninety rows of one source and ten of one row each: √90 against 10 of the weight."""
    many, few = (
        rows(np.full(90, np.exp(0.1)), sources=1),
        rows(np.exp(np.linspace(-0.2, -0.1, 10)), sources=10),
    )
    few = [replace(row, job=replace(row.job, run=row.run.replace(source=f"t/{n}")))
           for n, row in enumerate(few)]  # fmt: skip
    low, high = ends(many + few)[OLD]
    weight = 90**0.5 + 10
    # the middle of the value before a tenth of the weight, and of the one behind it
    place = 0.1 * weight - 0.5
    assert np.log(low) == pytest.approx(-0.2 + place * 0.1 / 9, abs=1e-3)
    assert np.log(high) == pytest.approx(0.1, abs=1e-3)


def test_unseen_features_count_by_family_and_are_not_widened(rows: Rows) -> None:
    apart = rows(np.exp(np.linspace(-0.05, 0.2, 45)), "unseen-feature", sources=2)
    found = ends(apart + rows(np.exp(np.linspace(-0.1, 0.1, 45))))
    assert found["unseen-feature"] == pytest.approx(
        tuple(np.exp(np.quantile(np.linspace(-0.05, 0.2, 45), (0.1, 0.9), method="hazen"))),
        rel=1e-3,
    )


def test_each_new_accelerator_counts_once(rows: Rows, make_run: MakeRun) -> None:
    """Ninety rows of one accelerator and thirty of another: half of the weight each."""
    many = rows(np.exp(np.full(90, 0.2)), "new-accelerator")
    other = predict(job_of(make_run(gpu="A100-80G-SXM", attention="flash-v2")))
    few = []
    for number in range(30):
        run = make_run(source=f"s/{number}", seconds=other.step_seconds * np.exp(-0.2),
                       gpu="A100-80G-SXM", attention="flash-v2")  # fmt: skip
        few.append(replace(other, job=replace(other.job, run=run), interval_kind="new-accelerator"))
    low, high = ends(many + few)["new-accelerator"]
    wider = widening(2)  # two accelerators
    assert (np.log(low), np.log(high)) == pytest.approx((-0.2 * wider, 0.2 * wider), abs=1e-3)
    low, high = ends([replace(row, interval_kind=OLD) for row in many + few])[OLD]
    assert np.log(low) == pytest.approx(-0.2, abs=1e-3)  # a quarter of all rows
    many_more = rows(np.exp(np.full(900, 0.2)), "new-accelerator")
    assert ends(many_more + few)["new-accelerator"] == ends(many + few)["new-accelerator"]


def test_kinds_of_few_rows_take_the_ends_of_all(rows: Rows) -> None:
    many = rows(np.exp(np.linspace(-0.1, 0.1, 60)))
    few = rows(np.full(MIN_ROWS - 1, 1.3), YOUNG)
    made = intervals_by_kind(many + few, step_ratios)
    assert made[YOUNG].rows == len(many) + len(few)
    assert made[YOUNG] == made["experts"] == made["low-precision"]
    assert "too few" in made[YOUNG].low.source and "too few" not in made[OLD].low.source


def test_a_kind_is_shrunk_to_all_by_its_rows(rows: Rows) -> None:
    calm, wild = np.linspace(-0.05, 0.05, 90), np.linspace(-0.4, 0.4, 45)
    found = ends(rows(np.exp(calm)) + rows(np.exp(wild), YOUNG))
    whole = np.quantile(np.concatenate([calm, wild]), (0.1, 0.9), method="hazen")
    own = np.quantile(wild, (0.1, 0.9), method="hazen")
    share = 45 / (45 + SHRINK_ROWS)
    expected = share * own + (1 - share) * whole
    assert found[YOUNG] == pytest.approx(tuple(np.exp(expected)), rel=1e-3)


def test_few_sources_widen_as_student_says(rows: Rows) -> None:
    """Three sources: t(2) 1.886 over 1.2816 times sqrt(4/3); five and more: 1."""
    assert widening(3) == pytest.approx(1.886 / 1.2816 * (4 / 3) ** 0.5, rel=1e-3)
    assert [widening(n) for n in (1, 2, 3, 4, 5)] == sorted(
        (widening(n) for n in (1, 2, 3, 4, 5)), reverse=True
    )
    assert widening(5) == widening(50) == 1.0
    even = np.exp(np.linspace(-0.1, 0.1, 51))
    narrow, wide = ends(rows(even, sources=9))[OLD], ends(rows(even, sources=3))[OLD]
    for a, b in zip(narrow, wide, strict=True):
        assert np.log(b) == pytest.approx(widening(3) * np.log(a), rel=2e-2)


def test_an_interval_contains_its_prediction(rows: Rows) -> None:
    low, high = ends(rows(np.exp(np.linspace(0.2, 0.3, 40))))[OLD]
    assert low == 1.0 and high > 1.2


def test_intervals_of_a_sample_contain_their_share_of_another(rows: Rows) -> None:
    rng = np.random.default_rng(0)
    known, fresh = (rows(np.exp(rng.normal(0.02, 0.1, 300))) for _ in range(2))
    table = intervals_by_kind(known, step_ratios)
    errors = intervals.shipped().replace(step_seconds=table)
    inside = coverage(fresh, [], errors)["step_seconds"][OLD]
    assert inside.rows == 300
    assert inside.inside_fraction == pytest.approx(COVERAGE, abs=0.07)
    assert inside.below_fraction == pytest.approx(0.1, abs=0.05)


def test_coverage_by_hand(rows: Rows) -> None:
    table = intervals_by_kind(rows(np.exp(np.linspace(-0.2, 0.3, 51))), step_ratios)
    errors = intervals.shipped().replace(step_seconds=table)
    some = coverage(rows(np.array([0.5, 1.0, 1.1, 2.0, 3.0])), [], errors)["step_seconds"][OLD]
    assert (some.rows, some.inside_fraction) == (5, 0.4)
    assert (some.below_fraction, some.above_fraction) == (0.2, 0.4)


def test_taking_a_profiles_numbers_away(make_run: MakeRun) -> None:
    """The step by the medians of the others, costed through a scenario that holds them."""
    known = predict(job_of(make_run()))
    (found,) = without_own_coefficients([known])
    software = known.job.scenario.software
    other = with_coefficients(software, coefficients_of_others(software), "test")
    job = replace(known.job, scenario=known.job.scenario.replace(software=other))
    assert found.step_seconds == pytest.approx(predict(job).step_seconds, rel=1e-12)
    assert found.step_seconds != known.step_seconds


def test_taking_an_accelerators_clock_away(make_run: MakeRun) -> None:
    """The step at the median clock of the other fitted accelerators, by a scenario that has it."""
    known = predict(job_of(make_run()))
    topology = known.job.scenario.topology
    parts = [load(name, "accelerator", Accelerator) for name in names("accelerator")]
    others = [part.sustained_fraction for part in parts if part.name != topology.accelerator.name]
    clocks = [clocks["bf16"] for clocks in others if "bf16" in clocks]
    clock = median(float(clock) for clock in clocks if clock.status == "fitted")
    part = topology.accelerator.replace(sustained_fraction={
        **topology.accelerator.sustained_fraction, "bf16": Figure(clock, "test", "assumed")
    })  # fmt: skip
    scenario = known.job.scenario.replace(topology=topology.replace(accelerator=part))
    expected = predict(replace(known.job, scenario=scenario)).step_seconds
    (found,) = without_own_clock([known])
    assert found.step_seconds == pytest.approx(expected, rel=1e-12)
    assert expected != known.step_seconds


def test_the_file_reads_back(rows: Rows) -> None:
    table = intervals_by_kind(rows(np.exp(np.linspace(-0.2, 0.3, 51))), step_ratios)
    errors = intervals.shipped().replace(step_seconds=table)
    back = parse(intervals_yaml(errors), "made.yaml", PredictionErrors)
    assert back == errors
    assert back.step_seconds[OLD].low.source == table[OLD].low.source


@pytest.fixture(scope="module")
def calibrated() -> IntervalCalibration:
    return fit_intervals(read_runs(PUBLISHED_RUNS), Selection(min_mfu=0.15))


@pytest.mark.slow
def test_the_shipped_intervals_are_those_of_the_command(
    calibrated: IntervalCalibration,
) -> None:
    """After a change of the cost model or of coefficients: planner calibrate errors --out ..."""
    shipped = (data_root() / intervals.SHIPPED).read_text("utf-8")
    assert calibrated.to_yaml() == shipped


@pytest.mark.slow
def test_four_of_five_steps_left_out_lie_inside_their_intervals(
    calibrated: IntervalCalibration,
) -> None:
    found = calibrated.left_out["step_seconds"]
    assert found["all"].rows > 2000  # every row once as each unseen kind too
    for kind, covered in found.items():
        if covered.rows >= MIN_ROWS:
            # of these two each accelerator or profile counts once, rows do not
            least = 0.7 if kind in KINDS[:2] else 0.75
            assert least <= (covered.inside_fraction or 0) <= 0.88, kind


@pytest.mark.slow
def test_sources_lie_inside_intervals_made_without_them(calibrated: IntervalCalibration) -> None:
    assert 0.75 <= (calibrated.judged.inside_fraction or 0) <= 0.88
    least = min(
        covered.inside_fraction or 0
        for covered in calibrated.by_source.values()
        if covered.rows >= 15
    )
    assert least >= 0.6


def test_assumed_software_moves_no_interval(off_by: MakeRun) -> None:
    """Rows that would widen every interval, one of them by its peak memory."""
    errors = (0.1, -0.1, 0.05, -0.05)
    known = [
        off_by(error, id=f"known {n}", source=f"a/b{n}", peak_mem_gb=40.0, split_hint=f"s{n}")
        for n, error in enumerate(errors)
    ]
    unknown = [
        off_by(0.8, id=f"x {n}", source="x/y", framework="Homemade", peak_mem_gb=400.0,
               split_hint=f"s{n}")
        for n in range(len(errors))
    ]  # fmt: skip
    selection = Selection(min_mfu=0.15)
    assert {in_half(row, "fit") for row in unknown} == {True, False}
    alone, found = (fit_intervals(rows, selection) for rows in (known, known + unknown))
    assert found.to_document() == alone.to_document()


def test_nothing_timed_is_refused(make_run: MakeRun) -> None:
    with pytest.raises(InputError, match="no timed row"):
        fit_intervals([make_run(seconds=None, oom=True)], Selection(min_mfu=0.15))
