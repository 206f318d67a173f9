"""The bound: component minima over splits, valid by monotonicity, which is checked itself."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.search.placement import splits
from tests.search.monotone import first_decrease
from tests.search.synthetic import KINDS, brute_force, random_problem
from tests.search.synthetic_bounds import (
    component_minima,
    group_minima,
    link_bound,
    simplex_weights,
)

SEEDS = st.integers(0, 10_000)


def flat_step(problem, layout):
    """The step of a layout as a function of flat vectors: latency, then busy, per group."""
    names, tiers = list(layout.groups), len(problem.widths)

    def step(costs):
        table = np.reshape(costs, (*np.shape(costs)[:-1], len(names), 1 + tiers))
        latency = {name: table[..., k, 0] for k, name in enumerate(names)}
        busy = {name: table[..., k, 1:] for k, name in enumerate(names)}
        return problem.step(layout, latency, busy)

    return step, len(names) * (1 + tiers)


@given(st.sampled_from(KINDS), SEEDS)
@settings(max_examples=40, deadline=None)
def test_step_is_monotone_in_every_component(kind, seed):
    problem = random_problem(kind, seed)
    step, size = flat_step(problem, problem.layouts[0])
    costs = np.random.default_rng(seed).exponential(0.2, size)
    assert first_decrease(step, costs) is None


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_that_pays_back_traffic_is_caught(kind):
    problem = replace(random_problem(kind, 1), rebate=1.5)
    step, size = flat_step(problem, problem.layouts[0])
    costs = np.random.default_rng(0).exponential(0.2, size)
    assert "step falls" in first_decrease(step, costs)


def test_an_overlap_that_hides_more_than_there_is_is_caught():
    def step(costs):  # hides budget even where nothing is left to hide
        return 1.0 + costs[..., 0] - np.minimum(costs[..., 0], costs[..., 1])

    assert first_decrease(step, [0.5, 0.1]).startswith("component 1")


@pytest.mark.parametrize("kind", KINDS)
def test_a_non_monotone_step_breaks_the_bound(kind):
    broken = False
    for seed in range(20):
        problem = replace(random_problem(kind, seed), rebate=1.5)
        bounds = problem.lower_bounds()
        for step, i, placement in brute_force(problem):
            row = problem.step_seconds(np.array([i]), np.array([placement]))[0]
            assert row <= step + 1e-12
            broken |= bool(bounds[i] > row * (1 + 1e-9))
    assert broken


@given(st.sampled_from(KINDS), SEEDS)
@settings(max_examples=40, deadline=None)
def test_bound_is_at_most_the_least_step_of_every_layout(kind, seed):
    problem = random_problem(kind, seed)
    bounds = problem.lower_bounds()
    tighter = problem.tighter_bounds(range(problem.num_layouts))
    assert (tighter >= bounds * (1 - 1e-12)).all()
    for step, i, _ in brute_force(problem):
        assert max(bounds[i], tighter[i]) <= step * (1 + 1e-12)


def test_group_minima_take_each_component_by_itself():
    rows = splits(4, (4, 4))
    assert rows.tolist() == [[4, 1], [2, 2], [1, 4]]
    minima = group_minima(
        lambda s: s[:, 1].astype(float),
        lambda s: (s - 1.0) * np.array([1.0, 2.0]),
        rows,
        np.array([[0.5, 0.5], [0.0, 1.0]]),
    )
    assert minima.latency_seconds == 1.0
    assert minima.busy_seconds.tolist() == [0.0, 0.0]
    assert minima.serial_seconds == 4.0
    assert minima.weighted_seconds.tolist() == [1.5, 0.0]


def test_link_bound_beats_the_minima_tier_by_tier_and_stays_true():
    rows = splits(4, (4, 4))
    weights = simplex_weights(2, 4)
    groups = [
        group_minima(
            lambda s: np.zeros(len(s)), lambda s, v=v: v * (s - 1.0), rows, weights
        )
        for v in (1.0, 2.0)
    ]  # fmt: skip
    true = min(
        (1.0 * (a - 1.0) + 2.0 * (b - 1.0)).max() for a in rows for b in rows
    )  # fmt: skip
    assert 0.0 < link_bound(groups) <= true
    assert link_bound([]) == 0.0


def test_simplex_weights_are_on_the_simplex():
    weights = simplex_weights(3, 4)
    assert len(weights) == 15
    assert (weights >= 0).all()
    assert np.allclose(weights.sum(axis=1), 1.0)


def test_a_group_without_splits_has_no_minima():
    with pytest.raises(ValueError, match="without a split"):
        component_minima(np.zeros((0, 3)))
