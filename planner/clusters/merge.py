"""Readings of several files joined by node: what they agree on, what contradicts, what is unknown.

Sources name domains differently: Slurm's block001 is nvl1 of a label. So names are not compared:
two namings agree where they group the nodes they share alike, and a domain of the second then goes
by the first one's name. Groupings that differ contradict each other. A domain that shares no node
with the first naming's domains may be any of those that are left: its nodes stay unplaced.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from planner.clusters.cluster_facts import (
    SCALE_UP,
    Host,
    Reading,
    Said,
    level_height,
    level_name,
    listed,
)
from planner.errors import InputError, nearest_of

FACTS = ("accelerators", "state", "address")
Placed = dict[str, dict[str, Said]]
"""Level → node → the statement that holds, its value in the first naming's words."""


def effective(readings: Sequence[Reading], notes: list[str]) -> list[Reading]:
    """The readings that count: topology.yaml overrides topology.conf, as in Slurm."""
    newer = [r.path for r in readings if r.format == "slurm-yaml"]
    older = [r.path for r in readings if r.format == "slurm-conf"]
    if newer and older:
        notes.append(f"{newer[0]} overrides {listed(older)}, as Slurm has it: not read")
        return [r for r in readings if r.format != "slurm-conf"]
    return list(readings)


def facts(readings: Sequence[Reading]) -> dict[str, dict[str, Said]]:
    """Accelerators, state and address by node.

    Raises:
        InputError: two statements differ.
    """
    found: dict[str, dict[str, Said]] = {key: {} for key in FACTS}
    named = {
        node for r in readings if r.format != "ibnetdiscover" for node in r.nodes
    }  # what another file names is no stray host of the fabric
    for said in _said(readings):
        if said.key not in FACTS or (said.naming == "ibnetdiscover" and said.node in named):
            continue
        first = found[said.key].setdefault(said.node, said)
        if first.value != said.value:
            raise _contradiction(
                f"node {said.node} has {said.key} {said.value} here and {first.value} in "
                f"{first.place}",
                said,
            )
    return found


def one_host(readings: Sequence[Reading]) -> Host | None:
    """The inside of the nodes that files without a node's name show.

    Raises:
        InputError: they differ.
    """
    hosts = [host for r in readings for host in r.hosts if host.node is None]
    for host in hosts[1:]:
        for what in ("accelerators", "joined", "links"):
            one, other = getattr(hosts[0], what), getattr(host, what)
            if one != other and None not in (one, other):
                raise InputError(
                    f"{what} {other} here, and {one} in {hosts[0].path}; neither file says of "
                    "which node",
                    path=host.path, line=host.line,
                    allowed="one kind of node, or lines that carry the node's name (pdsh)",
                )  # fmt: skip
    return max(hosts, key=lambda h: (h.links is not None, len(h.adapters)), default=None)


def levels_of(readings: Sequence[Reading], names: Mapping[str, str]) -> list[str]:
    """The levels that are spoken of, inner to outer; `names` gives tiers' names → levels.

    Raises:
        InputError: a level of another name.
    """
    spoken: dict[str, int] = {}
    for said in _said(readings):
        if said.key in FACTS:
            continue
        level = names.get(said.key, said.key)
        height = -1 if level == SCALE_UP else level_height(level)
        if height is None:
            known = list(dict.fromkeys([*names, SCALE_UP, *map(level_name, range(4))]))
            raise InputError(
                f"'{said.key}' is no level", path=said.path, line=said.line, key=said.key,
                allowed=", ".join(known), nearest=nearest_of(said.key, known),
            )  # fmt: skip
        spoken[level] = height
    return sorted(spoken, key=spoken.__getitem__)


def placed(readings: Sequence[Reading], names: Mapping[str, str], notes: list[str]) -> Placed:
    """The domain of every node and level that is known.

    Raises:
        InputError: sources group nodes differently, or domains do not nest.
    """
    result: Placed = {}
    for level in levels_of(readings, names):
        by_naming: dict[str, dict[str, Said]] = {}
        for said in _said(readings):
            if names.get(said.key, said.key) != level:
                continue
            mine = by_naming.setdefault(said.naming, {})
            first = mine.setdefault(said.node, said)
            if first.value != said.value:
                raise _contradiction(
                    f"node {said.node} is in {level} {said.value} here, and in {first.value} by "
                    f"{first.place}",
                    said,
                )
        merged: dict[str, Said] = {}
        for naming, statements in by_naming.items():
            merged = _joined(merged, statements, level, naming, notes)
        result[level] = merged
    _require_nesting(result)
    return result


def _said(readings: Iterable[Reading]) -> Iterable[Said]:
    return (said for reading in readings for said in reading.said)


def _joined(
    base: dict[str, Said], other: Mapping[str, Said], level: str, naming: str, notes: list[str]
) -> dict[str, Said]:
    """`base` with the nodes of another naming, in base's words."""
    if not base:
        return dict(other)
    to_base: dict[str, Said] = {}
    from_base: dict[str, Said] = {}
    shared = [node for node in other if node in base]
    for node in shared:
        ours, theirs = base[node], other[node]
        first = to_base.setdefault(str(theirs.value), ours)
        back = from_base.setdefault(str(ours.value), theirs)
        if first.value != ours.value:
            raise _contradiction(
                f"{level} {theirs.value} holds {node} and {first.node} here, which {ours.place} "
                f"and {first.place} place in {ours.value} and {first.value}",
                theirs,
            )
        if back.value != theirs.value:
            raise _contradiction(
                f"{node} and {back.node} are in {level} {theirs.value} and {back.value} here, and "
                f"both in {ours.value} by {ours.place}",
                theirs,
            )
    same_words = all(base[node].value == other[node].value for node in shared)
    all_linked = {str(said.value) for said in base.values()} <= from_base.keys()
    result, unplaced = dict(base), []
    for node, said in other.items():
        if node in base:
            continue
        if str(said.value) in to_base:
            value = to_base[str(said.value)].value
        elif same_words or all_linked:
            value = said.value
        else:
            unplaced.append(node)
            continue
        result[node] = Said(node, level, value, said.naming, said.path, said.line)
    if unplaced:
        notes.append(
            f"{level} by {naming}: no node ties the domains of {listed(unplaced)} to those of "
            "the other file: unknown"
        )
    return result


def _require_nesting(found: Placed) -> None:
    for inner, outer in pairwise(found):
        above: dict[str | int, Said] = {}
        for node, said in found[inner].items():
            over = found[outer].get(node)
            if over is None:
                continue
            first = above.setdefault(said.value, over)
            if first.value != over.value:
                raise _contradiction(
                    f"{inner} {said.value} (node {node}, {said.place}) lies in {outer} "
                    f"{over.value}, and by {first.place} (node {first.node}) in {first.value}",
                    over,
                )


def _contradiction(message: str, said: Said) -> InputError:
    return InputError(
        message, path=said.path, line=said.line, allowed="files that agree on every node"
    )
