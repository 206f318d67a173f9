"""What hides behind what, by hand and by its bounds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.cost.overlap import beyond, chunked, shown

SHARE = 0.15

seconds = st.floats(0.0, 1e3)


@pytest.mark.parametrize(
    ("busy", "budget", "exposed"), [(5.0, 3.0, 2.0), (3.0, 3.0, 0.0), (1.0, 3.0, 0.0)]
)
def test_beyond(busy: float, budget: float, exposed: float) -> None:
    assert beyond(busy, budget) == exposed


def chunked_8(budget: float, beyond_domain: float = 0.0, enabled: int = 1) -> float:
    return float(chunked(8.0, beyond_domain, 4, budget, enabled))


def test_one_chunk_stays_exposed() -> None:
    assert chunked_8(budget=100.0) == 2.0


def test_no_more_hides_than_the_budget() -> None:
    assert chunked_8(budget=3.0) == 5.0


def test_what_leaves_the_domain_does_not_hide() -> None:
    assert chunked_8(budget=100.0, beyond_domain=7.0) == 7.0
    assert chunked_8(budget=0.5, beyond_domain=7.0) == 7.5


def test_disabled_hides_nothing() -> None:
    assert chunked_8(budget=100.0, enabled=0) == 8.0


@given(seconds, seconds, st.floats(0, 1), st.integers(1, 64), st.booleans())
def test_exposed_is_between_a_chunk_and_all(
    busy: float, budget: float, outside: float, chunks: int, enabled: bool
) -> None:
    exposed = float(chunked(busy, outside * busy, chunks, budget, enabled))
    assert busy / chunks <= exposed <= busy
    assert exposed >= outside * busy
    assert exposed >= busy - budget


@given(seconds, seconds, seconds, seconds, st.integers(1, 64), st.booleans())
def test_exposed_rises_with_traffic_and_falls_with_budget(
    busy: float, outside: float, budget: float, more: float, chunks: int, enabled: bool
) -> None:
    before = chunked(busy, outside, chunks, budget, enabled)
    assert chunked(busy + more, outside, chunks, budget, enabled) >= before
    assert chunked(busy, outside + more, chunks, budget, enabled) >= before
    assert chunked(busy, outside, chunks, budget + more, enabled) <= before
    assert beyond(busy + more, budget) >= beyond(busy, budget) >= beyond(busy, budget + more)


def test_arrays_are_taken_element_by_element() -> None:
    busy, enabled = np.array([8.0, 8.0, 1.0]), np.array([1, 0, 1])
    chunks, budget = np.array([4, 4, 1]), np.array([100.0, 100.0, 0.0])
    assert chunked(busy, 0.0, chunks, budget, enabled).tolist() == [2.0, 8.0, 1.0]
    assert beyond(busy, budget).tolist() == [0.0, 0.0, 1.0]


@pytest.mark.parametrize(
    ("busy", "budget", "exposed"),
    [
        (3.0, 0.0, 3.0),  # nothing to run beside
        (3.0, 10.0, 3.0 * SHARE),  # all of it, for what it takes from that work
        (3.0, 2.0, 1.0 + 2.0 * SHARE),
        (0.0, 2.0, 0.0),
    ],
)
def test_traffic_beside_other_work_by_hand(busy: float, budget: float, exposed: float) -> None:
    assert float(shown(busy, budget, SHARE)) == pytest.approx(exposed)


@given(seconds, seconds, seconds)
def test_traffic_beside_work_never_falls_with_traffic_nor_rises_with_work(
    busy: float, budget: float, more: float
) -> None:
    base = float(shown(busy, budget, SHARE))
    rounding = 1e-12 * (busy + budget + more)
    assert float(shown(busy + more, budget, SHARE)) >= base - rounding
    assert float(shown(busy, budget + more, SHARE)) <= base + rounding
    assert SHARE * busy - rounding <= base <= busy + rounding


@given(seconds, seconds)
def test_what_takes_nothing_from_other_work_is_beyond_it(busy: float, budget: float) -> None:
    assert float(shown(busy, budget, 0.0)) == pytest.approx(float(beyond(busy, budget)))
    assert float(shown(busy, budget, 1.0)) == busy
