"""Broken on purpose, the search's own checks fail; the list of benchmarks/mutations.py is alive.

The whole list runs by `python benchmarks/mutations.py`; here are a handful, in this process.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import planner
from planner import api
from planner.cost.context import CostContext
from planner.problem.fills import fills
from planner.problem.scenario import Search
from planner.search import assign, bounds, optimize, placement_rows
from planner.search.certify import certify
from planner.search.optimize import search
from tests.oracles import plain_least_step
from tests.scenarios import small_accelerator, small_scenario, small_topology
from tests.search.checks import check_plan, fitting_layouts
from tests.search.synthetic import brute_force, random_problem
from tests.search.test_layout_problem import check_bounds as check_bounds_of
from tests.search.test_layout_problem import some_problem
from tests.search.test_optimize import check_against

PACKAGE = Path(planner.__file__).parent


def mutations() -> Any:
    path = PACKAGE.parent / "benchmarks" / "mutations.py"
    spec = importlib.util.spec_from_file_location("mutations", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


LIST = mutations()


@pytest.mark.parametrize("mutation", LIST.MUTATIONS, ids=lambda m: m.name)
def test_every_mutation_still_has_its_place(mutation: Any) -> None:
    text = (PACKAGE / mutation.file).read_text("utf-8")
    changed = LIST.mutated(mutation, text)
    compile(changed, mutation.file, "exec")
    assert changed != text
    names = {test.partition("::")[0] for test in mutation.tests}
    assert all((PACKAGE.parent / name).is_file() for name in names)


def test_a_dozen_and_more_are_listed() -> None:
    assert len({mutation.name for mutation in LIST.MUTATIONS}) == len(LIST.MUTATIONS) >= 12


def optima_are_those_of_enumeration(tie_fraction: float = 0.05) -> None:
    for kind in ("coupled", "replicated", "expert"):
        for seed in range(6):
            problem = random_problem(kind, seed)
            result = search(problem, top_k=3, tie_fraction=tie_fraction)
            check_against(problem, result, brute_force(problem), 3, tie_fraction)
            assert certify(problem, result, tie_fraction=tie_fraction).valid


def test_unbroken_all_is_well() -> None:
    optima_are_those_of_enumeration()


def inverted(candidates: Any) -> Any:
    ranks = UNBROKEN["tie_ranks"](candidates)
    return len(ranks) - 1 - ranks


def fullest(widths: Any, num: int) -> Any:
    return fills(widths, num)[:1]


def needs_less(incumbents: Any, bound: float) -> bool:
    return bool(bound < inf and bound < 0.8 * incumbents.kth_seconds)


UNBROKEN: dict[str, Callable[..., Any]] = {"tie_ranks": assign.tie_ranks}


@pytest.mark.parametrize(
    ("where", "name", "broken"),
    [
        (assign, "tie_ranks", inverted),
        (placement_rows, "fills", fullest),
        (optimize._Incumbents, "needs", needs_less),
    ],
    ids=["tie rule inverted", "only the fullest fill", "threshold too low"],
)
def test_a_broken_search_is_noticed(
    monkeypatch: pytest.MonkeyPatch, where: Any, name: str, broken: Any
) -> None:
    placement_rows._few_placements.cache_clear()
    monkeypatch.setattr(where, name, broken)
    with pytest.raises((AssertionError, assign.SolverError)):
        optima_are_those_of_enumeration()
    monkeypatch.undo()
    placement_rows._few_placements.cache_clear()


def test_a_bound_a_hundredth_too_high_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    _, problem, least = some_problem()
    check_bounds_of(problem, least)
    own = type(problem)._bound
    monkeypatch.setattr(type(problem), "_bound", lambda *args: 1.01 * own(*args))
    with pytest.raises(AssertionError):
        check_bounds_of(problem, least)


class MostForLeast:
    """numpy whose `min` is `max`, for one module alone."""

    min = staticmethod(np.max)

    def __getattr__(self, name: str) -> object:
        return getattr(np, name)


def test_largest_instead_of_least_costs_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    _, problem, least = some_problem()
    bounds._minima.cache_clear()
    monkeypatch.setattr(bounds, "np", MostForLeast())
    with pytest.raises(AssertionError):
        check_bounds_of(problem, least)
    monkeypatch.undo()
    bounds._minima.cache_clear()


def test_no_memory_filter_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    from planner.search import families

    topology = small_topology((2, 4), accelerator=small_accelerator(hbm_bytes=2.5e9))
    scenario = small_scenario(8, topology=topology, search=Search(mbs=(1,), vp=(1,)))
    ctx = CostContext.of(scenario)
    least = {row: plain_least_step(ctx, row) for row in fitting_layouts(ctx, scenario)}
    assert least
    check_plan(api.plan(scenario, top_k=4), scenario, least)
    monkeypatch.setattr(
        families, "fits_in_memory", lambda ctx, asked, t: np.ones(len(t), dtype=bool)
    )
    with pytest.raises(AssertionError):
        check_plan(api.plan(scenario, top_k=4), scenario, least)
