"""Groups of what shares a member, against joining pairs until nothing changes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from planner.clusters.reading import connected_groups

MEMBERS = st.dictionaries(st.integers(0, 9), st.sets(st.integers(0, 12), max_size=3))


def by_pairs(members: dict[int, set[int]]) -> list[list[int]]:
    groups = [([key], set(found)) for key, found in members.items()]
    order = list(members)
    while True:
        pair = next(
            ((a, b) for a in groups for b in groups if a is not b and a[1] & b[1]), None
        )  # fmt: skip
        if pair is None:
            return sorted((sorted(keys, key=order.index) for keys, _ in groups),
                          key=lambda keys: order.index(keys[0]))  # fmt: skip
        a, b = pair
        groups = [g for g in groups if g is not a and g is not b]
        groups.append((a[0] + b[0], a[1] | b[1]))


@given(MEMBERS)
def test_groups_are_those_of_joining_pairs(members: dict[int, set[int]]) -> None:
    assert connected_groups(members) == by_pairs(members)


def test_a_chain_is_one_group_and_what_shares_nothing_is_alone() -> None:
    assert connected_groups({"c": "12", "a": "3", "b": "23", "d": ""}) == [["c", "a", "b"], ["d"]]
