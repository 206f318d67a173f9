"""What hangs together because it shares something: accelerators a link, nodes a leaf."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import TypeVar

KeyT = TypeVar("KeyT", bound=Hashable)


def joined(members: Mapping[KeyT, Iterable[Hashable]]) -> list[list[KeyT]]:
    """Groups of keys that share a member, directly or through others, in the order of the keys."""
    of = {key: [key] for key in members}
    first: dict[Hashable, KeyT] = {}
    for key, found in members.items():
        for member in found:
            ours, theirs = of[key], of[first.setdefault(member, key)]
            if ours is not theirs:
                less, more = sorted((ours, theirs), key=len)
                more += less
                of |= dict.fromkeys(less, more)
    place = {key: position for position, key in enumerate(members)}
    groups = {id(group): group for group in of.values()}
    return [sorted(group, key=place.__getitem__) for group in groups.values()]


def sizes(members: Mapping[KeyT, Iterable[Hashable]]) -> tuple[int, ...]:
    """How many keys each group has, largest first."""
    return tuple(sorted(map(len, joined(members)), reverse=True))
