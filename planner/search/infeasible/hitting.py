"""Smallest sets that meet every one of several sets, exactly.

Each way out of an infeasible problem (a layout) drops some constraints: those it breaks. A set of
constraints is infeasible by itself if and only if it meets what every layout breaks; the smallest
such sets are the shortest reasons. Plain branch and bound: sets that contain another are met with
it, and some member of the smallest set that is not met yet must be taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def minimal(sets: Iterable[frozenset[str]]) -> list[frozenset[str]]:
    """The sets that contain no other, smallest first, in an order of their own."""
    kept: list[frozenset[str]] = []
    for one in sorted(set(sets), key=lambda members: (len(members), sorted(members))):
        if not any(other <= one for other in kept):
            kept.append(one)
    return kept


def smallest_hitting_set(
    sets: Iterable[frozenset[str]], order: Sequence[str]
) -> tuple[str, ...] | None:
    """A smallest set that meets all the sets, members in `order`, the first such by it; None where
    a set is empty, which nothing meets."""
    left = minimal(sets)
    if left and not left[0]:
        return None
    rank = {name: position for position, name in enumerate(order)}
    best: list[tuple[str, ...]] = [tuple(rank)]

    def search(chosen: tuple[str, ...], left: list[frozenset[str]]) -> None:
        if not left:
            found = tuple(sorted(chosen, key=rank.__getitem__))
            if (len(found), [rank[m] for m in found]) < (len(best[0]), [rank[m] for m in best[0]]):
                best[0] = found
            return
        if len(chosen) + _disjoint(left) > len(best[0]):
            return
        for member in sorted(left[0], key=rank.__getitem__):
            search((*chosen, member), [one for one in left if member not in one])

    search((), left)
    return best[0]


def _disjoint(sets: Sequence[frozenset[str]]) -> int:
    """How many sets share no member with one before: each needs a member of its own."""
    seen: set[str] = set()
    count = 0
    for one in sets:
        if seen.isdisjoint(one):
            seen |= one
            count += 1
    return count
