"""What random problems are made of: splits that occur together, refined grids of experts."""

import itertools
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.search.placement import splits
from tests.oracles import all_placements
from tests.search.synthetic import NotNestedError, refine, splits_with
from tests.search.test_placement import DEGREES, WIDTHS


@given(DEGREES, WIDTHS)
@settings(max_examples=40, deadline=None)
def test_splits_with_another_are_exactly_those_that_occur_together(degrees, widths):
    num, (first, *others) = prod(degrees), range(len(degrees))
    together = {}
    for row in all_placements(tuple(degrees), widths):
        split = tuple(prod(row[a][t] for a in others) for t in range(len(widths)))
        together.setdefault(row[first], set()).add(split)
    for taken in splits(degrees[first], widths, num).tolist():
        found = splits_with(num // degrees[first], widths, num, taken)
        assert set(map(tuple, found.tolist())) == together[tuple(taken)]


def test_refine_crosses_dense_and_expert_grids():
    atoms, (dense, expert) = refine((8, 16, 128), (2, 16, 128))
    for chain, groups in (((8, 2, 8), dense), ((2, 8, 8), expert)):
        assert tuple(prod(atoms[a] for a in group) for group in groups) == chain
        assert sorted(itertools.chain(*groups)) == list(range(len(atoms)))
    assert len(atoms) == 5


@given(st.lists(st.sampled_from([1, 2, 3, 4]), min_size=3, max_size=3), st.data())
@settings(max_examples=60, deadline=None)
def test_refine_keeps_every_degree_or_refuses(degrees, data):
    total = prod(degrees)
    etp = data.draw(st.sampled_from([d for d in range(1, total + 1) if total % d == 0]))
    ep = data.draw(st.sampled_from([d for d in range(1, total + 1) if total // etp % d == 0]))
    chains = tuple(np.cumprod(degrees).tolist()), (etp, etp * ep, total)
    pairs = itertools.product(*chains)
    if all(a % b == 0 or b % a == 0 for a, b in pairs):
        atoms, groups = refine(*chains)
        assert prod(atoms) == total
        sizes = [tuple(prod(atoms[a] for a in g) for g in blocks) for blocks in groups]
        assert sizes == [tuple(degrees), (etp, ep, total // etp // ep)]
    else:
        with pytest.raises(NotNestedError):
            refine(*chains)


def test_refine_refuses_grids_over_different_ranks():
    with pytest.raises(ValueError, match="same number of ranks"):
        refine((2, 4), (2, 8))
