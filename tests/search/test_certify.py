"""The certificate accepts what the search gives and names every kind of tampering."""

import ast
from dataclasses import replace
from pathlib import Path

import pytest

from planner.search import certify as certify_module
from planner.search.certify import certify
from planner.search.interface import SideConstraints
from planner.search.optimize import search
from tests.search.synthetic import KINDS, random_problem

TIES = 0.005


@pytest.fixture(scope="module")
def solved():
    problem = random_problem("coupled", 10)
    return problem, search(problem, top_k=3, tie_fraction=TIES)


def failures(problem, result, **options):
    return " | ".join(certify(problem, result, tie_fraction=TIES, **options).failures)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(5))
def test_answers_of_the_search_are_valid(kind, seed):
    problem = random_problem(kind, seed)
    certificate = certify(problem, search(problem, top_k=3), tie_fraction=TIES)
    assert certificate.valid
    assert len(certificate.checks) == 6


def test_changed_factors_are_caught(solved):
    problem, result = solved
    placement = [list(atom) for atom in result.best.placement]
    placement[0][0] *= 2
    bad = replace(result.best, placement=tuple(map(tuple, placement)))
    text = failures(problem, replace(result, best=bad))
    assert "do not give its degree" in text
    assert "do not give its fill" in text


def test_factors_below_one_and_missing_tiers_are_caught(solved):
    problem, result = solved
    zero = replace(result.best, placement=((0,) * len(problem.widths),) * 5)
    assert "factor below 1" in failures(problem, replace(result, best=zero))
    short = replace(result.best, placement=result.best.placement[:-1])
    assert "does not have 5 atoms" in failures(problem, replace(result, best=short))


def test_a_fill_beyond_the_width_is_caught(solved):
    problem, result = solved
    narrow = replace(problem, widths=(1, *problem.widths[1:]))
    assert "does not lie within its width 1" in failures(narrow, result)


def test_a_wrong_step_is_caught(solved):
    problem, result = solved
    bad = replace(result.best, step_seconds=result.best.step_seconds * 1.001)
    assert "when costed again" in failures(problem, replace(result, best=bad))


def test_a_wrong_objective_or_bound_is_caught(solved):
    problem, result = solved
    low = replace(result, objective_seconds=result.objective_seconds * 0.9)
    text = failures(problem, low)
    assert "is not the step of its row" in text
    assert "lies above the objective" in text
    assert "outside the tie band" in text
    high = replace(result, bound_seconds=1e9, opened_layouts=())
    assert "above an unopened layout's bound" in failures(problem, high)


def test_an_unopened_layout_that_may_win_is_caught(solved):
    problem, result = solved
    assert "may beat the threshold" in failures(problem, replace(result, opened_layouts=()))
    none = replace(result, status="infeasible", opened_layouts=())
    text = failures(problem, none)
    assert "called infeasible" in text
    assert "does not fit an objective" in text


def test_runners_up_out_of_order_or_repeated_are_caught(solved):
    problem, result = solved
    assert len(result.runners_up) == 2
    turned = replace(result, runners_up=result.runners_up[::-1])
    assert "out of order" in failures(problem, turned)
    twice = replace(result, runners_up=(result.runners_up[0],) * 2)
    assert "repeat a layout" in failures(problem, twice)
    alone = replace(result, best=None, fastest=None, objective_seconds=None)
    assert "runners-up without a best" in failures(problem, alone)


def test_broken_side_constraints_are_caught():
    problem = random_problem("coupled", 12)
    result = search(problem)
    assert result.best.order is None
    assert "no framework order's" in failures(
        problem, result, constraints=SideConstraints(orders="framework")
    )
    claimed = replace(result, best=replace(result.best, order=(4, 3, 2, 1, 0)))
    assert "not among the framework's" in failures(problem, claimed)
    reaching = {
        name: 0
        for name, atoms in problem.groups(result.best.layout_index).items()
        if any(f > 1 for a in atoms for f in result.best.placement[a][1:])
    }
    assert "reaches past tier 0" in failures(problem, result, constraints=SideConstraints(reaching))


def test_a_bound_above_the_step_is_caught(solved):
    problem, result = solved
    dearer = replace(
        problem, layouts=tuple(replace(s, compute=s.compute + 1.0) for s in problem.layouts)
    )

    class Broken(type(problem)):
        def lower_bounds(self):
            return dearer.lower_bounds()

    broken = Broken(problem.widths, problem.layouts, problem.alpha, problem.beta)
    assert "above the step" in failures(broken, result)


def test_certify_imports_no_solver():
    tree = ast.parse(Path(certify_module.__file__).read_text(encoding="utf-8"))
    names = [n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
    assert not [n for n in names if n and ("ortools" in n or "assign" in n or "optimize" in n)]
