"""Metrics against values worked out by hand, and their independence of the order of rows."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.evidence.metrics import (
    Candidate,
    Fits,
    MemoryErrors,
    Ranking,
    TimeErrors,
    mean,
    pair_scores,
    pick,
    regret,
)


def row(
    name: str, predicted: float, measured: float | None, *, key: str = "", fits: bool = True
) -> Candidate:
    return Candidate(name, key or name, predicted, measured, fits)


def test_time_errors_by_hand() -> None:
    errors = TimeErrors.of([-0.1, 0.3, -0.2, 0.0])
    assert errors.rows == 4
    assert errors.mape_fraction == pytest.approx(0.15)
    assert errors.median_fraction == pytest.approx(0.15)
    assert errors.bias_fraction == pytest.approx(0.0)
    # sizes 0, .1, .2, .3: the quantile lies 0.95 · 3 = 2.85 steps up
    assert errors.p95_fraction == pytest.approx(0.2 + 0.85 * 0.1)


def test_no_rows_give_null_and_not_zero() -> None:
    assert TimeErrors.of([]) == TimeErrors(0, None, None, None, None)
    assert MemoryErrors.of([]) == MemoryErrors(0, None, None, None)
    assert Ranking.of([]) == Ranking(0, None, None, None, 0, 0)
    assert Fits.of([]).balanced_accuracy is None
    assert mean([]) is None


def test_pairs_right_wrong_and_tied() -> None:
    group = [row("a", 1.0, 10.0), row("b", 2.0, 8.0), row("c", 2.0, 20.0)]
    # a-b is wrong, a-c is right, b-c is a tie
    assert sorted(pair_scores(group)) == [0.0, 0.5, 1.0]


def test_pairs_leave_out_repeats_near_times_and_oom() -> None:
    repeats = [row("a", 1.0, 10.0, key="k"), row("b", 1.0, 12.0, key="k")]
    assert pair_scores(repeats) == []
    assert pair_scores([row("a", 1.0, 100.0), row("b", 2.0, 102.0)]) == []
    assert pair_scores([row("a", 1.0, 100.0), row("b", 2.0, 102.1)]) == [1.0]
    assert pair_scores([row("a", 1.0, 10.0), row("b", 2.0, None)]) == []


def test_regret_is_the_measured_loss_of_the_pick() -> None:
    group = [row("a", 1.0, 12.0), row("b", 2.0, 10.0), row("c", 0.5, None)]
    assert regret(group) == pytest.approx(0.2)
    assert regret([row("c", 0.5, None)]) is None


def test_regret_takes_the_median_of_repeats() -> None:
    repeats = [row(f"a{i}", 1.0, seconds, key="k") for i, seconds in enumerate((9.0, 12.0, 30.0))]
    assert regret([*repeats, row("b", 2.0, 10.0)]) == pytest.approx(0.2)


def test_equal_predictions_are_picked_by_id() -> None:
    assert pick([row("b", 1.0, 1.0), row("a", 1.0, 2.0)]) == row("a", 1.0, 2.0)
    assert pick([]) is None


def test_ranking_by_hand() -> None:
    first = [row("a", 1.0, 12.0), row("b", 2.0, 10.0), row("x", 0.5, None)]
    second = [row("c", 1.0, 5.0), row("d", 2.0, 6.0), row("y", 0.5, None, fits=False)]
    unfit = [row("e", 1.0, 5.0, fits=False), row("f", 2.0, 7.5, fits=False)]
    ranking = Ranking.of([first, second, unfit])
    assert ranking.groups == 3
    assert ranking.pairwise_fraction == pytest.approx(2 / 3)
    assert ranking.regret_median_fraction == 0.0
    assert ranking.regret_max_fraction == pytest.approx(0.2)
    # no row of the third is judged to fit; x of the first ran out of memory
    assert (ranking.picks, ranking.picks_oom) == (2, 1)


def test_fits_by_hand() -> None:
    ran = [("fits", False)] * 5 + [("fragile", False)] * 2 + [("no", False)] * 3
    ran_out = [("fits", True)] + [("fragile", True)] + [("no", True)] * 2
    fits = Fits.of(ran + ran_out)
    assert (fits.true_fit, fits.false_oom, fits.true_oom, fits.false_fit) == (7, 3, 2, 2)
    assert (fits.fragile_fit, fits.fragile_oom) == (2, 1)
    assert fits.balanced_accuracy == pytest.approx((0.7 + 0.5) / 2)
    assert fits.to_document()["balanced_accuracy"] == fits.balanced_accuracy


def test_memory_by_hand() -> None:
    errors = MemoryErrors.of([-0.05, 0.2, -0.3])
    assert errors.median_fraction == pytest.approx(0.2)
    assert errors.max_under_fraction == pytest.approx(0.3)
    assert errors.max_over_fraction == pytest.approx(0.2)
    assert MemoryErrors.of([0.1]).max_under_fraction == 0.0
    assert MemoryErrors.of([-0.1]).max_over_fraction == 0.0


candidates = st.lists(
    st.builds(
        Candidate,
        id=st.uuids().map(str),
        repeat_key=st.sampled_from("abcdef"),
        predicted=st.floats(0.1, 10),
        measured=st.none() | st.floats(0.1, 10),
        fits=st.booleans(),
    ),
    max_size=8,
    unique_by=lambda candidate: candidate.id,
)


@given(st.lists(candidates, max_size=4), st.lists(st.floats(-1, 3), max_size=9), st.randoms())
def test_order_of_rows_does_not_matter(
    groups: list[list[Candidate]], errors: list[float], rng: random.Random
) -> None:
    shuffled = [rng.sample(group, len(group)) for group in rng.sample(groups, len(groups))]
    assert Ranking.of(shuffled) == Ranking.of(groups)
    mixed = rng.sample(errors, len(errors))
    assert TimeErrors.of(mixed) == TimeErrors.of(errors)
    assert MemoryErrors.of(mixed) == MemoryErrors.of(errors)


@given(candidates)
def test_bounds(group: list[Candidate]) -> None:
    ranking = Ranking.of([group])
    assert all(score in (0.0, 0.5, 1.0) for score in pair_scores(group))
    assert ranking.regret_max_fraction is None or ranking.regret_max_fraction >= 0
    assert 0 <= ranking.picks_oom <= ranking.picks <= 1
