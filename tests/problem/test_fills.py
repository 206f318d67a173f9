"""Fills against plain enumeration."""

import itertools
from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.inputs.values import load
from planner.problem.fills import fills
from planner.problem.topology import Topology

WIDTHS = st.sampled_from([(4, 8), (72, 2), (48, 3, 2), (2, 3, 4), (2, 2, 2, 3), (8, 2, 2, 2)])


def plain_fills(widths, num):
    return [
        f for f in itertools.product(*(range(w, 0, -1) for w in widths)) if prod(f) == num
    ]  # fmt: skip


@given(WIDTHS, st.integers(1, 150))
@settings(max_examples=60, deadline=None)
def test_fills_are_all_and_fullest_first(widths, num):
    assert fills(widths, num) == plain_fills(widths, num)


def test_a_rack_of_72_takes_72_or_64():
    assert (64, 1) in fills((72, 8), 64)
    assert fills((72, 8), 576) == [(72, 8)]
    assert fills((72, 8), 512) == [(64, 8)]
    assert fills((8, 4), 64) == []


def test_a_count_below_one_fills_nothing():
    with pytest.raises(ValueError, match="positive counts"):
        fills((8, 4), 0)


def test_fills_of_a_topology_are_those_of_its_widths():
    topology = load("dgx-h100", "topology", Topology)
    assert topology.fills(64) == fills(topology.widths, 64) != []
