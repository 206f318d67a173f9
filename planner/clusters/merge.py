"""Readings of several files joined by node: what they agree on, what contradicts, what is unknown.

Sources name domains differently: Slurm's block001 is nvl1 of a label. So names are not compared:
two namings agree where they group the nodes they share alike, and a domain of the second then goes
by the first one's name. Groupings that differ contradict each other. A domain that shares no node
with the first naming's domains may be any of those that are left: its nodes stay unplaced.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from planner.clusters.reading import (
    SCALE_UP,
    NodeHardware,
    Reading,
    Statement,
    in_words,
    level_height,
    level_name,
)
from planner.errors import InputError, nearest_of

FACTS = ("accelerators", "state", "address")
"""Keys of statements that are not about domains."""

ByNode = Mapping[str, Statement]


@dataclass(frozen=True, slots=True)
class Level:
    """A level of domains: its name, its tier in the topology, and node → domain where known."""

    name: str
    tier: str
    domains: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class MergedCluster:
    """What all files say together.

    Attributes:
        name: of the inventory and topology to be made.
        source: the files, in words.
        nodes: names, in the order in which files name them.
        levels: inner to outer.
        accelerators: of each node that is counted.
        states, addresses: the statements about nodes that have one.
        hardware: the inside of nodes that are not named.
    """

    name: str
    source: str
    nodes: tuple[str, ...]
    levels: tuple[Level, ...]
    accelerators: Mapping[str, int]
    states: ByNode
    addresses: ByNode
    hardware: NodeHardware | None


def without_overridden(readings: Sequence[Reading], notes: list[str]) -> list[Reading]:
    """Return the readings that count: topology.yaml overrides topology.conf, as in Slurm."""
    newer = [reading.path for reading in readings if reading.format == "slurm-yaml"]
    older = [reading.path for reading in readings if reading.format == "slurm-conf"]
    if newer and older:
        notes.append(f"{newer[0]} overrides {in_words(older)}, as Slurm has it: not read")
        return [reading for reading in readings if reading.format != "slurm-conf"]
    return list(readings)


def _statements(readings: Sequence[Reading]) -> Iterator[Statement]:
    return (statement for reading in readings for statement in reading.statements)


def _contradiction(message: str, statement: Statement) -> InputError:
    place = statement.place
    return InputError(
        message, path=place.path, line=place.line, allowed="files that agree on every node"
    )


# ---------------------------------------------------------------- facts about nodes


def merged_facts(readings: Sequence[Reading]) -> dict[str, dict[str, Statement]]:
    """Return, for each of FACTS, the statement about each node that has one.

    Raises:
        InputError: two statements differ.
    """
    facts: dict[str, dict[str, Statement]] = {key: {} for key in FACTS}
    # A host that another file names too is no stray host of the fabric.
    named = {
        node for reading in readings if reading.format != "ibnetdiscover" for node in reading.nodes
    }
    for statement in _statements(readings):
        node, key = statement.node, statement.key
        if key not in FACTS or (statement.naming == "ibnetdiscover" and node in named):
            continue
        first = facts[key].setdefault(node, statement)
        if first.value != statement.value:
            raise _contradiction(
                f"node {node} has {key} {statement.value} here and {first.value} in {first.place}",
                statement,
            )
    return facts


def merged_hardware(readings: Sequence[Reading]) -> NodeHardware | None:
    """Return the inside of the nodes, from files that do not say which node they show.

    Raises:
        InputError: those files differ.
    """
    unnamed = [each for reading in readings for each in reading.hardware if each.node is None]
    for other in unnamed[1:]:
        for attribute, noun in (
            ("accelerators", "accelerators"), ("linked", "joined"), ("links", "links")
        ):  # fmt: skip
            first, here = getattr(unnamed[0], attribute), getattr(other, attribute)
            if first != here and None not in (first, here):
                raise other.place.error(
                    f"{noun} {here} here, and {first} in {unnamed[0].place.path}; neither file "
                    "says of which node",
                    allowed="nodes that are alike, or lines that carry the node's name (pdsh)",
                )
    # The file that shows most: links first, then adapters.
    return max(unnamed, key=lambda h: (h.links is not None, len(h.adapters)), default=None)


# ---------------------------------------------------------------- domains of nodes


def merged_domains(
    readings: Sequence[Reading], level_of: Mapping[str, str], notes: list[str]
) -> dict[str, dict[str, Statement]]:
    """Return, for each level that is known, the statement that places each node.

    Args:
        level_of: a topology's tier names → levels; a level may go by either.
        notes: what cannot be merged is added to these.

    Returns:
        Level, inner to outer → node → statement, its value in the first naming's words.

    Raises:
        InputError: an unknown level, sources that group nodes differently, or domains that do not
            nest.
    """
    placed: dict[str, dict[str, Statement]] = {}
    for level in _levels(readings, level_of):
        by_naming: dict[str, dict[str, Statement]] = {}
        for statement in _statements(readings):
            if level_of.get(statement.key, statement.key) != level:
                continue
            same_naming = by_naming.setdefault(statement.naming, {})
            first = same_naming.setdefault(statement.node, statement)
            if first.value != statement.value:
                raise _contradiction(
                    f"node {statement.node} is in {level} {statement.value} here, and in "
                    f"{first.value} by {first.place}",
                    statement,
                )
        merged: dict[str, Statement] = {}
        for naming, statements in by_naming.items():
            merged, unplaced = _joined(merged, statements, level)
            if unplaced:
                notes.append(
                    f"{level} by {naming}: no node ties the domains of {in_words(unplaced)} to "
                    "those of the other file: unknown"
                )
        placed[level] = merged
    _require_nesting(placed)
    return placed


def _levels(readings: Sequence[Reading], level_of: Mapping[str, str]) -> list[str]:
    """Return the levels that statements are about, inner to outer.

    Raises:
        InputError: a level of another name.
    """
    heights: dict[str, int] = {}
    for statement in _statements(readings):
        if statement.key in FACTS:
            continue
        level = level_of.get(statement.key, statement.key)
        height = -1 if level == SCALE_UP else level_height(level)
        if height is None:
            known = list(dict.fromkeys([*level_of, SCALE_UP, *map(level_name, range(4))]))
            raise InputError(
                f"'{statement.key}' is no level", path=statement.place.path,
                line=statement.place.line, key=statement.key, allowed=", ".join(known),
                nearest=nearest_of(statement.key, known),
            )  # fmt: skip
        heights[level] = height
    return sorted(heights, key=heights.__getitem__)


def _joined(
    base: Mapping[str, Statement], other: Mapping[str, Statement], level: str
) -> tuple[dict[str, Statement], list[str]]:
    """Return `base` with the nodes of another naming, in base's words, and those left unplaced.

    Raises:
        InputError: the two group nodes differently.
    """
    if not base:
        return dict(other), []
    to_base, from_base = _translations(base, other, level)
    shared = [node for node in other if node in base]
    same_words = all(base[node].value == other[node].value for node in shared)
    all_linked = {str(statement.value) for statement in base.values()} <= from_base
    merged, unplaced = dict(base), []
    for node, statement in other.items():
        if node in base:
            continue
        if str(statement.value) in to_base:
            domain: str | int = to_base[str(statement.value)].value
        elif same_words or all_linked:
            domain = statement.value
        else:
            unplaced.append(node)
            continue
        merged[node] = Statement(node, level, domain, statement.naming, statement.place)
    return merged, unplaced


def _translations(
    base: Mapping[str, Statement], other: Mapping[str, Statement], level: str
) -> tuple[dict[str, Statement], set[str]]:
    """Return the other naming's domains → a statement of base's name, and base's translated names.

    Raises:
        InputError: two nodes are in one domain by one naming, and in two by the other.
    """
    to_base: dict[str, Statement] = {}
    from_base: dict[str, Statement] = {}
    for node, theirs in other.items():
        if node not in base:
            continue
        ours = base[node]
        first = to_base.setdefault(str(theirs.value), ours)
        if first.value != ours.value:
            raise _contradiction(
                f"{level} {theirs.value} holds {node} and {first.node} here, which {ours.place} "
                f"and {first.place} place in {ours.value} and {first.value}",
                theirs,
            )
        back = from_base.setdefault(str(ours.value), theirs)
        if back.value != theirs.value:
            raise _contradiction(
                f"{node} and {back.node} are in {level} {theirs.value} and {back.value} here, and "
                f"both in {ours.value} by {ours.place}",
                theirs,
            )
    return to_base, set(from_base)


def _require_nesting(placed: Mapping[str, Mapping[str, Statement]]) -> None:
    """Check that each domain lies in one domain of the next level."""
    for inner, outer in pairwise(placed):
        around: dict[str | int, Statement] = {}
        for node, statement in placed[inner].items():
            outer_statement = placed[outer].get(node)
            if outer_statement is None:
                continue
            first = around.setdefault(statement.value, outer_statement)
            if first.value != outer_statement.value:
                raise _contradiction(
                    f"{inner} {statement.value} (node {node}, {statement.place}) lies in {outer} "
                    f"{outer_statement.value}, and by {first.place} (node {first.node}) in "
                    f"{first.value}",
                    outer_statement,
                )
