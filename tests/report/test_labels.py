"""Where labels go: apart, in order, near their own place."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.report.plots.labels import flags, rows, spread, text_inches

places = st.lists(st.floats(-100, 100), max_size=12)
spans = st.lists(st.tuples(st.floats(-50, 50), st.floats(0.1, 30)), max_size=10)


def test_what_is_apart_stays():
    assert spread([3.0, 0.0, 8.0], 2.0) == [3.0, 0.0, 8.0]


def test_what_is_close_moves_to_both_sides_of_its_middle():
    assert spread([1.0, 1.0], 2.0) == pytest.approx([0.0, 2.0])
    assert spread([0.0, 10.0, 10.5, 11.0], 1.0) == pytest.approx([0.0, 9.5, 10.5, 11.5])


@given(places, st.floats(0.1, 5))
def test_spread_keeps_order_and_distance(positions, gap):
    moved = spread(positions, gap)
    order = sorted(range(len(positions)), key=lambda i: positions[i])
    for a, b in pairwise(order):
        assert moved[b] - moved[a] >= gap * (1 - 1e-9) - 1e-9


@given(spans)
def test_rows_do_not_overlap(found):
    bounds = [(start, start + width) for start, width in found]
    taken = rows(bounds)
    for i, (start, end) in enumerate(bounds):
        for j, (other, last) in enumerate(bounds[:i]):
            assert taken[i] != taken[j] or end <= other or last <= start


@given(spans)
def test_no_pole_crosses_a_flag(found):
    """A pole reaches its own row; flags over it must be higher."""
    taken = flags(found)
    for i, (pole, width) in enumerate(found):
        for j, (other, _) in enumerate(found):
            if i != j and pole < other <= pole + width:
                assert taken[i] > taken[j]


def test_flags_stay_low_where_there_is_room():
    assert flags([(0, 1), (2, 1), (4, 1)]) == [0, 0, 0]
    assert flags([(0, 5), (2, 1), (4, 1)]) == [1, 0, 0]


def test_width_is_that_of_the_longest_line():
    assert text_inches("abc\nabcdef", 10) == text_inches("abcdef", 10) > text_inches("abc", 10)
