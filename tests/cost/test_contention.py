"""What traffic costs although it hides: by hand, by its bounds, and in a step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.cost.overlap import shown
from planner.cost.step import StepTime, evaluate
from planner.layouts.layout import Layout
from tests.expert_scenarios import sparse_model, sparse_software
from tests.oracles import innermost_splits
from tests.scenarios import context, software, training, uniform_topology

seconds = st.floats(0.0, 1e3)
shares = st.floats(0.0, 1.0)


def step(layout: Layout, rate: float, **parts: object) -> StepTime:
    ctx = context(topology=uniform_topology(bytes_per_second=rate), **parts)
    return evaluate(ctx, layout, innermost_splits(layout))


# ---------------------------------------------------------------- the formula


@pytest.mark.parametrize(
    ("busy", "budget", "contention", "added"),
    [
        (5.0, 0.0, 0.25, 5.0),  # nothing to run beside
        (4.0, 10.0, 0.25, 1.0),  # hidden, and paid for by a quarter
        (5.0, 4.0, 0.25, 2.0),  # one second is left over, four cost a second
        (5.0, 4.0, 0.0, 1.0),
        (5.0, 4.0, 1.0, 5.0),  # one after the other
        (0.0, 4.0, 0.25, 0.0),
    ],
)
def test_shown_by_hand(busy: float, budget: float, contention: float, added: float) -> None:
    assert float(shown(busy, budget, contention)) == pytest.approx(added)


@given(seconds, seconds, shares, seconds)
def test_shown_lies_between_hiding_for_nothing_and_not_hiding(
    busy: float, budget: float, contention: float, more: float
) -> None:
    added, rounding = float(shown(busy, budget, contention)), 1e-12 * (busy + budget + more)
    assert max(0.0, busy - budget, contention * busy) - rounding <= added <= busy + rounding
    assert float(shown(busy + more, budget, contention)) >= added - rounding
    assert float(shown(busy, budget + more, contention)) <= added + rounding


@given(seconds, seconds, shares, shares)
def test_more_contention_shows_more(busy: float, budget: float, one: float, other: float) -> None:
    less, more = sorted((one, other))
    assert shown(busy, budget, less) <= shown(busy, budget, more) + 1e-12 * (busy + budget)


def test_arrays_are_taken_element_by_element() -> None:
    busy, budget = np.array([4.0, 5.0, 5.0]), np.array([10.0, 4.0, 0.0])
    assert np.asarray(shown(busy, budget, 0.25)).tolist() == [1.0, 2.0, 5.0]


# ---------------------------------------------------------------- parameters and gradients

PARAMETERS = 8 * (4 * 32 * 32 + 2 * 32 * 128 + 2 * 32) + 2 * 64 * 32 + 32
STATE_BYTES = PARAMETERS * (4 + 2) / 2
"""Of 2 ranks: half of the gradients in 4 bytes leaves, half of the parameters in 2 comes."""


@pytest.mark.parametrize("contention", [0.0, 0.1, 0.4])
def test_hidden_gradients_slow_the_passes_they_hide_behind(contention: float) -> None:
    """So fast a link that all of it hides."""
    rate = 1e12
    numbers = {"dp_overlap_fraction": 1.0, "contention_fraction": contention}
    layout = Layout(dp_shard=2, num_microbatches=4, overlap="dp")
    found = step(layout, rate, software=software(numbers))
    assert float(found.dp) == pytest.approx(contention * STATE_BYTES / rate, rel=1e-9)
    waiting = step(replace(layout, overlap="none"), rate, software=software(numbers))
    assert float(waiting.dp) == pytest.approx(STATE_BYTES / rate, rel=1e-9)


def test_contention_takes_nothing_where_nothing_hides() -> None:
    layout = Layout(dp_shard=2, num_microbatches=4, overlap="dp")
    idle, busy = (
        step(layout, 1e9, software=software({"contention_fraction": c})) for c in (0.0, 0.9)
    )
    assert float(busy.total) == float(idle.total)


# ---------------------------------------------------------------- dispatch and combine


def test_hidden_dispatch_costs_its_multiprocessors() -> None:
    """DeepEP leaves 20 of 132 multiprocessors to dispatch and combine: 0.15 of what hides."""
    layout = Layout(dp_shard=2, ep=2, num_microbatches=1000)
    numbers = {"dp_overlap_fraction": 1.0, "contention_fraction": 0.9}
    parts = {
        "model": sparse_model(),
        "training": training(expert_load_variation=0.0),
        "software": sparse_software(numbers),
    }
    waiting = float(step(layout, 1e12, **parts).ep)
    hidden = float(step(replace(layout, overlap="ep"), 1e12, **parts).ep)
    assert waiting > 0
    assert hidden / waiting == pytest.approx(20 / 132, abs=0.005)
