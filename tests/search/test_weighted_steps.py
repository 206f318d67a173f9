"""Weighted steps: the lowest is found and proven, against every row costed plainly."""

import numpy as np
import pytest

from planner.search.certify import certify
from planner.search.optimize import search
from planner.search.weighted_steps import WeightedProblem
from tests.search.synthetic import KINDS, brute_force, random_problem


def factors(problem, seed):
    return np.random.default_rng(seed).choice([1.05, 1.2, 1.6], problem.num_layouts)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(6))
def test_the_answer_is_the_least_scaled_step_of_all_rows(kind, seed):
    problem = random_problem(kind, seed)
    factor = factors(problem, seed)
    scaled = WeightedProblem(problem, factor)
    result = search(scaled, top_k=3, tie_fraction=0.005)
    least = min(step * factor[i] for step, i, _ in brute_force(problem))
    assert result.status == "optimal"
    assert result.objective_seconds == pytest.approx(least, rel=1e-12)
    assert certify(scaled, result, tie_fraction=0.005).valid


@pytest.mark.parametrize("seed", range(6))
def test_some_scaled_choice_is_not_the_plain_one(seed):
    """Otherwise the test above would say nothing about factors."""
    problem = random_problem("coupled", seed)
    plain = search(problem, tie_fraction=0.0)
    factor = np.where(np.arange(problem.num_layouts) == plain.best.layout_index, 50.0, 1.0)
    robust = search(WeightedProblem(problem, factor), tie_fraction=0.0)
    others = [step for step, i, _ in brute_force(problem) if i != plain.best.layout_index]
    least = min([*others, 50.0 * plain.best.step_seconds])
    assert robust.best.step_seconds == pytest.approx(least, rel=1e-12)
    assert (robust.best.layout_index != plain.best.layout_index) == (
        least < 50.0 * plain.best.step_seconds
    )


@pytest.mark.parametrize("kind", KINDS)
def test_one_factor_for_all_changes_nothing_but_the_numbers(kind):
    problem = random_problem(kind, 3)
    plain = search(problem, top_k=3, tie_fraction=0.005)
    scaled = search(
        WeightedProblem(problem, np.full(problem.num_layouts, 2.0)), top_k=3, tie_fraction=0.005
    )
    assert (scaled.best.layout_index, scaled.best.placement) == (
        plain.best.layout_index,
        plain.best.placement,
    )
    assert scaled.objective_seconds == 2.0 * plain.objective_seconds
    assert [r.layout_index for r in scaled.runners_up] == [r.layout_index for r in plain.runners_up]


@pytest.mark.parametrize("kind", KINDS)
def test_bounds_stay_bounds(kind):
    problem = random_problem(kind, 1)
    factor = factors(problem, 1)
    scaled = WeightedProblem(problem, factor)
    layouts = np.arange(problem.num_layouts)
    bounds = np.maximum(scaled.lower_bounds(), scaled.tighter_bounds(layouts))
    for step, i, _ in brute_force(problem):
        assert bounds[i] <= step * factor[i] * (1 + 1e-12)


@pytest.mark.parametrize("factor", [0.0, -1.0, np.nan, np.inf])
def test_factors_that_are_no_positive_numbers_are_refused(factor):
    problem = random_problem("coupled", 0)
    with pytest.raises(ValueError, match="above 0"):
        WeightedProblem(problem, np.full(problem.num_layouts, factor))


def test_a_factor_for_every_layout():
    problem = random_problem("coupled", 0)
    with pytest.raises(ValueError, match="factors for"):
        WeightedProblem(problem, np.ones(problem.num_layouts + 1))
