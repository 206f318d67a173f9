"""Smallest hitting sets against trying every subset."""

from itertools import chain, combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from planner.search.infeasible.hitting import minimal, smallest_hitting_set

NAMES = "abcdefg"


@given(st.lists(st.frozensets(st.sampled_from(NAMES), min_size=1), max_size=12))
@settings(max_examples=300, deadline=None)
def test_smallest_is_that_of_all_subsets(sets: list[frozenset[str]]) -> None:
    found = smallest_hitting_set(sets, NAMES)
    subsets = chain.from_iterable(combinations(NAMES, size) for size in range(len(NAMES) + 1))
    assert found == next(s for s in subsets if all(one & set(s) for one in sets))


def test_what_nothing_meets() -> None:
    assert smallest_hitting_set([frozenset()], NAMES) is None
    assert smallest_hitting_set([], NAMES) == ()


@given(st.lists(st.frozensets(st.sampled_from(NAMES)), max_size=12))
@settings(max_examples=100, deadline=None)
def test_minimal_sets_contain_no_other_and_none_is_lost(sets: list[frozenset[str]]) -> None:
    kept = minimal(sets)
    assert all(any(one <= other for one in kept) for other in sets)
    assert not any(a < b for a in kept for b in kept)
