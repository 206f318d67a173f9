"""Domains for a plan's blocks: against enumeration, against CP-SAT, and on thousands of nodes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from ortools.sat.python import cp_model

from planner.problem.cluster import Cluster
from planner.search.inventory import choose_domains
from tests.inventories import NVL, cluster, racks

Ints = NDArray[np.int64]
Value = tuple[int, ...]


def totals(of: Cluster, blocks: Ints) -> list[Ints]:
    """Innermost blocks in every domain, per tier."""
    found = [blocks]
    for parent, names in zip(of.parent, of.domains[1:], strict=True):
        found.append(np.array([found[-1][parent == d].sum() for d in range(len(names))]))
    return found


def is_valid(of: Cluster, blocks: Ints, fill: Sequence[int]) -> bool:
    """By the definition: no domain is overfull, and blocks of every tier are whole in a domain."""
    if (blocks * fill[0] > of.accelerators[0]).any() or (blocks < 0).any():
        return False
    size, held = 1, totals(of, blocks)
    for used, found in zip(fill[1:], held[1:], strict=True):
        size *= used
        if (found % size != 0).any():
            return False
    return int((held[-1] // size).sum()) == 1


def value(of: Cluster, blocks: Ints) -> Value:
    """What is compared: domains in use, then their accelerators, from the outermost tier in."""
    used = [found > 0 for found in totals(of, blocks)]
    return (
        *(int(mask.sum()) for mask in reversed(used)),
        *(int(a[mask].sum()) for a, mask in zip(reversed(of.accelerators), reversed(used),
                                                strict=True)),
    )  # fmt: skip


def enumerated(of: Cluster, fill: Sequence[int]) -> Iterator[Ints]:
    most = (of.accelerators[0] // fill[0]).tolist()
    for numbers in product(*(range(m + 1) for m in most)):
        blocks = np.array(numbers, dtype=np.int64)
        if is_valid(of, blocks, fill):
            yield blocks


SIZES = st.lists(st.lists(st.integers(1, 6), min_size=1, max_size=3), min_size=1, max_size=3)
FILLS = st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3))


@settings(max_examples=120, deadline=None)
@given(SIZES, FILLS)
def test_the_choice_is_the_best_of_all(sizes: list[list[int]], fill: tuple[int, int, int]) -> None:
    of = cluster(sizes)
    assume(np.prod([a // fill[0] + 1 for a in of.accelerators[0].tolist()]) <= 3000)
    values = [value(of, blocks) for blocks in enumerated(of, fill)]
    found = choose_domains(of, fill)
    assert (found is None) == (not values)
    if found is not None:
        assert is_valid(of, found, fill)
        assert value(of, found) == min(values)


def by_cp_sat(of: Cluster, fill: Sequence[int]) -> Value:
    """The best value by a CP-SAT model of single domains, objectives fixed one after another."""
    model = cp_model.CpModel()
    blocks = [[model.new_int_var(0, int(m), "") for m in most] for most in of.blocks(fill)]
    used = [[model.new_bool_var("") for _ in tier] for tier in blocks]
    for tier, uses in zip(blocks, used, strict=True):
        for number, use in zip(tier, uses, strict=True):
            model.add(number >= use)
            model.add(number <= 100_000 * use)
    for t, parent in enumerate(of.parent, 1):
        for d, number in enumerate(blocks[t]):
            children = [blocks[t - 1][c] for c in np.flatnonzero(parent == d).tolist()]
            model.add(sum(children) == fill[t] * number)
    model.add(sum(blocks[-1]) == 1)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    found = []
    weighted = [
        sum(int(a) * use for a, use in zip(sizes, uses, strict=True))
        for sizes, uses in zip(of.accelerators, used, strict=True)
    ]
    for objective in (*(sum(uses) for uses in reversed(used)), *reversed(weighted)):
        model.minimize(objective)
        assert solver.solve(model) == cp_model.OPTIMAL
        found.append(round(solver.objective_value))
        model.add(objective == found[-1])
    return tuple(found)


@pytest.mark.parametrize("seed", range(12))
def test_a_solver_finds_nothing_better(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sizes = [rng.integers(1, 9, rng.integers(2, 6)).tolist() for _ in range(4)]
    of = cluster(sizes)
    fill = (int(rng.integers(2, 5)), int(rng.integers(1, 4)), int(rng.integers(1, 4)))
    found = choose_domains(of, fill)
    if found is None:
        assert not of.holds(fill)
    else:
        assert value(of, found) == by_cp_sat(of, fill)


def test_spares_are_whole_and_the_largest_domains() -> None:
    of = cluster([[8] * 4, [8] * 6, [8] * 4])
    found = choose_domains(of, (8, 4, 2))
    assert found is not None
    assert totals(of, found)[1].tolist() == [4, 0, 4]  # the leaf of 6 is left whole


def test_slow_tiers_join_the_fewest_domains() -> None:
    of = cluster([[8] * 2, [8] * 3, [8] * 6])
    found = choose_domains(of, (8, 1, 6))
    assert found is not None
    assert totals(of, found)[1].tolist() == [0, 0, 6]


def test_ties_go_to_the_first_domains() -> None:
    found = choose_domains(cluster([[4] * 3] * 4), (4, 2, 2))
    assert found is not None
    assert found.tolist() == [1, 1, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("fill", "racks_used"),
    [
        ((64, 8, 14), 112),  # racks of 72 used as 64, some with trays missing
        ((72, 1, 16), 16),  # whole racks only
        ((9, 8, 100), 115),  # blocks of 9
        ((36, 8, 16), None),
        ((4, 16, 64), None),
    ],
)
def test_thousands_of_nodes_in_seconds(fill: tuple[int, int, int], racks_used: int | None) -> None:
    of = Cluster.of(racks(128, 18, missing=0.04, seed=3), NVL)
    assert len(of.nodes) + len(of.left_out) == 2304
    started = time.perf_counter()
    found = choose_domains(of, fill)
    assert time.perf_counter() - started < 5
    if found is None:
        assert not of.holds(fill)
    else:
        assert is_valid(of, found, fill)
        assert racks_used is None or int(np.count_nonzero(found)) <= racks_used
