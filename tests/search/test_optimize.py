"""The search against plain enumeration of every fill × layout × placement by a scalar step."""

from dataclasses import dataclass, replace
from math import inf, isclose, prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.problem.fills import fills
from planner.search import optimize, placement_rows
from planner.search.certify import certify
from planner.search.interface import SideConstraints
from planner.search.optimize import search
from planner.search.placement import placements
from tests.search.synthetic import (
    KINDS,
    SyntheticProblem,
    brute_force,
    gives_order,
    random_problem,
)

SEEDS = st.integers(0, 100_000)


def is_framework(layout, placement):
    return any(gives_order(order, placement) for order in layout.orders)


def check_tie_rule(problem, found, plain, tie_fraction):
    """`found` is what the tie rule takes from the plain rows (float noise in its keys allowed)."""
    limit = min(plain)[0] * (1.0 + tie_fraction) * (1.0 + 1e-12)
    ties = [row for row in plain if row[0] <= limit]
    layouts = np.array([i for _, i, _ in ties])
    slow = problem.slow_tier_seconds(layouts, np.array([p for _, _, p in ties]))
    sums = problem.degrees_sum(layouts)
    order = [is_framework(problem.layouts[i], p) for _, i, p in ties]
    (at,) = [
        k for k, (_, i, p) in enumerate(ties) if (i, p) == (found.layout_index, found.placement)
    ]
    assert order[at] == any(order) == (found.order is not None)
    same = [k for k in range(len(ties)) if order[k] == order[at]]
    noise = 1e-6 * max(slow)
    assert slow[at] <= min(slow[k] for k in same) + noise
    same = [k for k in same if abs(slow[k] - slow[at]) <= noise]
    assert sums[at] <= max(sums[k] for k in same)


def check_against(problem, result, plain, top_k, tie_fraction):
    assert result.status == "optimal"
    least = min(plain)[0]
    assert isclose(result.objective_seconds, least, rel_tol=1e-12)
    assert result.bound_seconds == result.objective_seconds
    assert result.gap_fraction == 0.0
    assert result.fastest.step_seconds == result.objective_seconds
    check_tie_rule(problem, result.best, plain, tie_fraction)
    by_layout = {}
    for step, i, _ in plain:
        by_layout[i] = min(step, by_layout.get(i, inf))
    others = sorted(step for i, step in by_layout.items() if i != result.best.layout_index)[
        : top_k - 1
    ]
    assert np.allclose([row.step_seconds for row in result.runners_up], others, rtol=1e-12)
    assert result.counts.layouts == problem.num_layouts
    assert result.counts.opened == len(result.opened_layouts)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@given(SEEDS, st.sampled_from([0.0, 0.005, 0.1]), st.integers(1, 4))
@settings(max_examples=25, deadline=None)
def test_optimum_equals_plain_enumeration(kind, seed, tie_fraction, top_k):
    problem = random_problem(kind, seed)
    result = search(problem, top_k=top_k, tie_fraction=tie_fraction)
    check_against(problem, result, brute_force(problem), top_k, tie_fraction)
    assert certify(problem, result, tie_fraction=tie_fraction).valid


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@given(SEEDS, st.sampled_from(["any", "framework"]), st.data())
@settings(max_examples=25, deadline=None)
def test_side_constraints_equal_plain_filtering(kind, seed, orders, data):
    problem = random_problem(kind, seed)
    tiers = st.integers(0, len(problem.widths) - 1)
    names = st.sampled_from(sorted(problem.groups(0)))
    rules = SideConstraints(data.draw(st.dictionaries(names, tiers, max_size=2)), orders)

    def allowed(layout, placement):
        within = all(
            prod(placement[a][t] for t in range(last + 1, len(problem.widths))) == 1
            for group, last in rules.keep_within.items()
            for a in layout.groups[group].atoms
        )
        return within and (orders == "any" or is_framework(layout, placement))

    plain = brute_force(problem, allowed)
    result = search(problem, top_k=2, tie_fraction=0.01, constraints=rules)
    if plain:
        check_against(problem, result, plain, 2, 0.01)
    else:
        assert (result.status, result.best, result.runners_up) == ("infeasible", None, ())
        assert result.bound_seconds is None
    assert certify(problem, result, tie_fraction=0.01, constraints=rules).valid


@pytest.mark.parametrize(("kind", "seed"), [("coupled", 12), ("replicated", 24), ("expert", 12)])
def test_general_placement_beats_every_framework_order(kind, seed):
    problem = random_problem(kind, seed)
    plain = brute_force(problem)
    framework = min(step for step, i, p in plain if is_framework(problem.layouts[i], p))
    result = search(problem, tie_fraction=0.0)
    assert result.objective_seconds < 0.8 * framework
    assert result.best.order is None
    only = search(problem, tie_fraction=0.0, constraints=SideConstraints(orders="framework"))
    assert isclose(only.objective_seconds, framework, rel_tol=1e-12)
    assert only.best.order is not None


def test_instances_are_as_varied_as_they_claim():
    problems = [random_problem(kind, seed) for kind in KINDS for seed in range(60)]
    assert {len(p.widths) for p in problems} == {2, 3, 4}
    assert {48, 72} <= {width for p in problems for width in p.widths}
    assert all(p.num_layouts for p in problems)
    replicated = [random_problem("replicated", seed) for seed in range(20)]
    assert all(layout.degrees[3] > 1 for p in replicated for layout in p.layouts)
    expert = [layout for s in range(20) for layout in random_problem("expert", s).layouts]
    sizes = [
        [prod(x.degrees[a] for a in x.groups[g].atoms) for g in ("etp", "ep", "tp", "cp")]
        for x in expert
    ]
    assert any(ep > 1 and etp != tp for etp, ep, tp, _ in sizes)
    coupled = [layout for s in range(20) for layout in random_problem("coupled", s).layouts]
    roles = [[group.role for group in layout.groups.values()] for layout in coupled]
    assert all(max(r.count("hidden"), r.count("linked")) >= 2 for r in roles)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(4))
def test_small_blocks_give_the_same_answer(monkeypatch, kind, seed):
    problem = random_problem(kind, seed)
    whole = search(problem, top_k=3)
    sizes = []

    @dataclass(frozen=True)
    class Counting(SyntheticProblem):
        def step_seconds(self, layouts, placements):
            sizes.append(len(layouts))
            return super().step_seconds(layouts, placements)

    monkeypatch.setattr(optimize, "MAX_BLOCK_ROWS", 7)
    monkeypatch.setattr(placement_rows, "placement_blocks", small_blocks)
    monkeypatch.setattr(placement_rows, "_CACHED_ROWS", 0)
    placement_rows._few_placements.cache_clear()
    counting = Counting(problem.widths, problem.layouts, problem.alpha, problem.beta)
    parts = search(counting, top_k=3)
    placement_rows._few_placements.cache_clear()
    assert max(sizes) <= 7
    assert (parts.best, parts.fastest, parts.runners_up) == (
        whole.best,
        whole.fastest,
        whole.runners_up,
    )


def small_blocks(degrees, fill):
    found = placements(degrees, fill)
    for start in range(0, len(found), 5):
        yield found[start : start + 5]


def test_same_answer_twice_and_same_objective_in_another_order():
    problem = random_problem("coupled", 10)
    assert search(problem, top_k=3) == search(problem, top_k=3)
    turned = replace(problem, layouts=problem.layouts[::-1])
    assert search(turned).objective_seconds == search(problem).objective_seconds


def large_problem():
    """1 024 ranks, every dense layout with tp, cp, pp ≤ 8; costs of one random layout, scaled."""
    base = random_problem("coupled", 10)
    layout = base.layouts[0]
    powers = (1, 2, 4, 8)
    layouts = []
    for tp in powers:
        for cp in powers:
            for pp in powers:
                dp = 1024 // tp // cp // pp
                for shard in (d for d in (8, 16, 32, 64, 128) if dp % d == 0):
                    groups = {
                        name: replace(group, volume=group.volume / tp / pp)
                        for name, group in layout.groups.items()
                    }
                    groups["tp"] = replace(layout.groups["tp"], volume=10.0)
                    degrees = (tp, cp, shard, dp // shard, pp)
                    layouts.append(replace(layout, degrees=degrees, groups=groups))
    return SyntheticProblem((8, 16, 8), tuple(layouts), (1e-4, 3e-4, 1e-3), (90.0, 20.0, 10.0))


def test_a_large_problem_opens_few_layouts_and_equals_costing_everything():
    problem = large_problem()
    assert problem.num_layouts > 200
    result = search(problem, top_k=5)
    every = np.full(problem.num_layouts, inf)
    for i, degrees in enumerate(problem.degrees.tolist()):
        for fill in fills(problem.widths, prod(degrees)):
            found = placements(degrees, fill)
            if len(found):
                steps = problem.step_seconds(np.full(len(found), i), found)
                every[i] = min(every[i], steps.min())
    assert result.status == "optimal"
    assert result.counts.opened < problem.num_layouts / 2
    assert result.objective_seconds == every.min()
    keys = {row.layout_index for row in result.runners_up} | {result.best.layout_index}
    assert len(keys) == 5
    others = np.delete(every, result.best.layout_index)
    assert [row.step_seconds for row in result.runners_up] == np.sort(others)[:4].tolist()


def test_time_limit_gives_a_valid_bound():
    problem = large_problem()
    result = search(problem, time_limit_seconds=0.0)
    best = search(problem).objective_seconds
    assert result.status == "feasible"
    assert result.bound_seconds <= best <= result.objective_seconds
    assert 0.0 < result.gap_fraction < 1.0
    assert result.counts.opened == 0
    assert certify(problem, result, tie_fraction=0.005).valid


def test_time_limit_before_any_row_is_unknown():
    problem = large_problem()
    nothing = replace(problem, layouts=tuple(replace(s, orders=()) for s in problem.layouts))
    result = search(nothing, time_limit_seconds=0.0)
    assert (result.status, result.best, result.objective_seconds) == ("unknown", None, None)
    loose = problem.lower_bounds().min() * (1.0 - 1e-9)
    assert loose <= result.bound_seconds <= search(problem).objective_seconds
    assert certify(nothing, result, tie_fraction=0.005).valid


def test_no_layout_and_no_fill_are_infeasible():
    problem = random_problem("coupled", 0)
    assert search(replace(problem, widths=(1, 1))).status == "infeasible"

    class Empty(SyntheticProblem):
        degrees = np.ones((0, 5), dtype=np.int64)

    empty = Empty(problem.widths, (), problem.alpha, problem.beta)
    assert search(empty).status == "infeasible"


def test_one_key_counts_as_one_layout():
    problem = random_problem("coupled", 10)

    @dataclass(frozen=True)
    class Paired(SyntheticProblem):
        def identity(self, i):
            return i // 2

    doubled = Paired(
        problem.widths,
        tuple(layout for layout in problem.layouts for _ in range(2)),
        problem.alpha,
        problem.beta,
    )
    single = search(problem, top_k=4, tie_fraction=0.0)
    paired = search(doubled, top_k=4, tie_fraction=0.0)
    assert [r.step_seconds for r in paired.runners_up] == [
        r.step_seconds for r in single.runners_up
    ]
    assert [r.layout_index // 2 for r in paired.runners_up] == [
        r.layout_index for r in single.runners_up
    ]


def test_rows_and_layouts_ruled_out_by_infinity():
    problem = random_problem("coupled", 10)
    least = search(problem, tie_fraction=0.0).fastest

    @dataclass(frozen=True)
    class Barred(SyntheticProblem):
        def step_seconds(self, layouts, placements):
            steps = super().step_seconds(layouts, placements)
            return np.where(layouts == least.layout_index, inf, steps)

    barred = Barred(problem.widths, problem.layouts, problem.alpha, problem.beta)
    result = search(barred, top_k=problem.num_layouts)
    assert result.status == "optimal"
    assert least.layout_index not in {row.layout_index for row in (result.best, *result.runners_up)}
    assert result.objective_seconds > least.step_seconds


def test_numbers_that_are_none_and_names_that_are_unknown_are_refused():
    problem = random_problem("coupled", 10)

    class NoStep(SyntheticProblem):
        def step_seconds(self, layouts, placements):
            return np.full(len(layouts), np.nan)

    class NoBound(SyntheticProblem):
        def lower_bounds(self):
            return np.full(self.num_layouts, np.nan)

    class NoTighterBound(SyntheticProblem):
        def tighter_bounds(self, layouts):
            return np.full(len(layouts), np.nan)

    args = (problem.widths, problem.layouts, problem.alpha, problem.beta)
    with pytest.raises(ValueError, match="step_seconds"):
        search(NoStep(*args))
    with pytest.raises(ValueError, match="lower_bounds"):
        search(NoBound(*args))
    with pytest.raises(ValueError, match="tighter_bounds"):
        search(NoTighterBound(*args))
    with pytest.raises(ValueError, match="keep_within names 'tpp'"):
        search(problem, constraints=SideConstraints({"tpp": 0}))
    with pytest.raises(ValueError, match="top_k"):
        search(problem, top_k=0)
