"""What the files of a cluster say of its nodes, as values, with the place of every statement.

Each format's module gives one `Reading` per file; `merge` joins them by node. A level is a kind of
domain: `nvlink` (the accelerators that one scale-up fabric links), then the network from the
switches nearest to the nodes outwards: `leaf`, `spine`, `core`, `tier-3` ...
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from planner.errors import InputError, Place
from planner.inputs.text import MAX_DOCUMENT_BYTES, file_text, natural_number

SCALE_UP = "nvlink"
NETWORK_LEVELS = ("leaf", "spine", "core")
MAX_NODES = 200_000

_FURTHER = "tier-"
_ALLOWED = "a text file of a cluster"


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement about a node.

    Attributes:
        node: the node's name.
        key: `accelerators`, `state`, `address`, or the name of a level or tier.
        value: a count, a state, an address, or the name of a domain.
        naming: whose names of domains these are; two namings may call one domain differently.
        place: where the file says so.
    """

    node: str
    key: str
    value: str | int
    naming: str
    place: Place


@dataclass(frozen=True, slots=True)
class Adapter:
    """A network adapter of a node.

    Attributes:
        name: as the file has it.
        bits_per_second: its rate; None where the file does not show it.
        nearest: the accelerators that are nearest to it.
        distance: to those: 0 behind one PCIe switch with them (PIX), 1 over more bridges (PXB), 2
            over the processor's PCIe (PHB), 3 within one NUMA node, 4 across sockets.
    """

    name: str
    bits_per_second: float | None
    nearest: tuple[int, ...]
    distance: int | None

    @property
    def is_near(self) -> bool:
        """Whether traffic reaches an accelerator without leaving its side of the processor."""
        return self.distance is not None and self.distance <= 2


@dataclass(frozen=True, slots=True)
class NodeHardware:
    """The inside of a node.

    Attributes:
        node: its name; None where the file does not say which node it shows.
        accelerators: how many.
        linked: sizes of the groups of accelerators that scale-up links join, largest first; None
            where the file does not show links.
        links: of each accelerator; None where the file does not show them.
        adapters: in the order of the file.
        accelerator_types: those of the PCI device ids that are known.
        place: where the file shows it.
    """

    node: str | None
    accelerators: int
    linked: tuple[int, ...] | None
    links: tuple[int, ...] | None
    adapters: tuple[Adapter, ...]
    accelerator_types: tuple[str, ...]
    place: Place


@dataclass(frozen=True, slots=True)
class Reading:
    """What one file says.

    Attributes:
        path: the file.
        format: its format, by the name that `--format` takes.
        nodes: the names of the nodes it knows, in its order.
        statements: about those nodes.
        hardware: the inside of nodes, named or not.
        notes: what the user should know, in words.
    """

    path: str
    format: str
    nodes: tuple[str, ...] = ()
    statements: tuple[Statement, ...] = ()
    hardware: tuple[NodeHardware, ...] = ()
    notes: tuple[str, ...] = ()


# ---------------------------------------------------------------- levels of the network


def level_name(height: int) -> str:
    """Return the network level `height` switches above the nearest one."""
    return NETWORK_LEVELS[height] if height < len(NETWORK_LEVELS) else f"{_FURTHER}{height}"


def level_height(name: str) -> int | None:
    """Return the height whose `level_name` this is; None if it is no network level."""
    height = natural_number(name.removeprefix(_FURTHER))
    if height is None:
        height = NETWORK_LEVELS.index(name) if name in NETWORK_LEVELS else 0
    return height if level_name(height) == name else None


# ---------------------------------------------------------------- helpers of the readers


def cluster_text(path: str | Path) -> str:
    """Return the text of a file of a cluster.

    Raises:
        InputError: unreadable, too long, empty, or not text in UTF-8.
    """
    text = file_text(path, _ALLOWED, max_bytes=MAX_DOCUMENT_BYTES)
    if not text.strip():
        raise InputError("the file is empty", path=str(path), allowed=_ALLOWED)
    return text


def in_words(names: Sequence[str], most: int = 8) -> str:
    """Return names for a message, at most so many of them: 'a, b and 3 more'."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


KeyT = TypeVar("KeyT", bound=Hashable)


def connected_groups(members: Mapping[KeyT, Iterable[Hashable]]) -> list[list[KeyT]]:
    """Return groups of keys that share a member, directly or through others.

    Groups and the keys in them are in the order of the mapping. Keys are, for example, nodes whose
    members are the switches they hang on, or accelerators whose members are links.
    """
    group_of = {key: [key] for key in members}
    first_with: dict[Hashable, KeyT] = {}
    for key, own_members in members.items():
        for member in own_members:
            ours, theirs = group_of[key], group_of[first_with.setdefault(member, key)]
            if ours is not theirs:
                # The smaller group moves, so that each key moves at most log2(n) times.
                smaller, larger = sorted((ours, theirs), key=len)
                larger += smaller
                group_of |= dict.fromkeys(smaller, larger)
    position = {key: place for place, key in enumerate(members)}
    groups = {id(group): group for group in group_of.values()}
    return [sorted(group, key=position.__getitem__) for group in groups.values()]


def group_sizes(members: Mapping[KeyT, Iterable[Hashable]]) -> tuple[int, ...]:
    """Return how many keys each of the `connected_groups` has, largest first."""
    return tuple(sorted(map(len, connected_groups(members)), reverse=True))
