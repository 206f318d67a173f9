"""What the files of a cluster say of its nodes, with the place of every statement.

Readers give one `Reading` a file; `cluster_merge` joins them by node. A level is a kind of domain:
`nvlink` (what one scale-up fabric joins), then the network from the switch nearest to the nodes
outwards: `leaf`, `spine`, `core`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from planner.errors import InputError
from planner.inputs.text import MAX_DOCUMENT_BYTES, file_text, natural_number

SCALE_UP = "nvlink"
NETWORK_LEVELS = ("leaf", "spine", "core")
_FURTHER = "tier-"
MOST_NODES = 200_000
ALLOWED = "a text file of a cluster"


@dataclass(frozen=True, slots=True)
class Said:
    """One statement about a node: what (`accelerators`, `state`, `address`, or a level), and where.

    `naming` tells whose names of domains these are: two namings may call one domain differently.
    """

    node: str
    key: str
    value: str | int
    naming: str
    path: str
    line: int | None

    @property
    def place(self) -> str:
        """File and line."""
        return f"{self.path}:{self.line}" if self.line else self.path


@dataclass(frozen=True, slots=True)
class Adapter:
    """A network adapter of a node: its name, bits per second, nearest accelerators, by nearness.

    distance: 0 behind one PCIe switch with them (PIX), 1 more bridges (PXB), 2 the processor's
    PCIe (PHB), 3 one NUMA node, 4 across sockets.
    """

    name: str
    bits_per_second: float | None
    nearest: tuple[int, ...]
    distance: int | None


@dataclass(frozen=True, slots=True)
class Host:
    """The inside of a node: accelerators, how many of them a scale-up fabric joins, adapters.

    node: None where the file does not say whose inside it is. joined: sizes of the groups that
    scale-up links join; None where the file does not show links. links: of each accelerator.
    """

    node: str | None
    accelerators: int
    joined: tuple[int, ...] | None
    links: tuple[int, ...] | None
    adapters: tuple[Adapter, ...]
    devices: tuple[str, ...]  # PCI device ids of the accelerators that are known
    path: str
    line: int | None


@dataclass(frozen=True, slots=True)
class Reading:
    """What one file says. levels: the network levels it knows, inner to outer."""

    path: str
    format: str
    nodes: tuple[str, ...] = ()
    said: tuple[Said, ...] = ()
    hosts: tuple[Host, ...] = ()
    notes: tuple[str, ...] = ()


def level_name(height: int) -> str:
    """The network level `height` switches above the nearest one."""
    return NETWORK_LEVELS[height] if height < len(NETWORK_LEVELS) else f"{_FURTHER}{height}"


def level_height(name: str) -> int | None:
    """The height whose `level_name` this is; None where it is none's."""
    height = natural_number(name.removeprefix(_FURTHER))
    if height is None:
        height = NETWORK_LEVELS.index(name) if name in NETWORK_LEVELS else 0
    return height if level_name(height) == name else None


def cluster_text(path: str | Path) -> str:
    """The text of a file of at most MAX_DOCUMENT_BYTES.

    Raises:
        InputError: unreadable, too long, empty, or not text in UTF-8.
    """
    text = file_text(path, ALLOWED, max_bytes=MAX_DOCUMENT_BYTES)
    if not text.strip():
        raise InputError("the file is empty", path=str(path), allowed=ALLOWED)
    return text


def listed(names: Sequence[str], most: int = 8) -> str:
    """Names for a message, the first few of them."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def host_notes(host: Host) -> list[str]:
    """What is odd about a node's adapters: shared, numbered the other way, away from all GPUs."""
    place = f"{host.path}:{host.line}" if host.line else host.path
    if not host.adapters:
        return [f"{place}: no network adapters are shown; how many there are stays unknown"]
    notes = []
    near = [a for a in host.adapters if a.distance is not None and a.distance <= 2 and a.nearest]
    far = [a.name for a in host.adapters if a not in near]
    if far and near:
        notes.append(
            f"{place}: {listed(far)} {_be(far)} behind no accelerator's PCIe switch: "
            "storage or front end, not counted"
        )
    if not near:
        return [*notes, f"{place}: no adapter is close to an accelerator; their use is unknown"]
    notes += _shared(near, place)
    one_to_one = all(len(a.nearest) == 1 for a in near)
    order = [a.nearest[0] for a in near]
    if one_to_one and len(set(order)) == len(order) > 1 and order != sorted(order):
        pairs = ", ".join(f"accelerator {a.nearest[0]} {a.name}" for a in near[:3])
        way = "reversed" if _is_reversed(order) else "not in the order of the accelerators"
        notes.append(
            f"{place}: adapters are {way} ({pairs}, ...): bind them by nearness, not by number"
        )
    if len(near) % host.accelerators and host.accelerators % len(near):
        notes.append(
            f"{place}: {len(near)} adapters near {host.accelerators} accelerators do not divide: "
            "which of them carry training traffic is not known"
        )
    return notes


def _shared(near: Sequence[Adapter], place: str) -> list[str]:
    by_group: dict[tuple[int, ...], list[str]] = {}
    for adapter in near:
        by_group.setdefault(adapter.nearest, []).append(adapter.name)
    shared = {group: names for group, names in by_group.items() if len(group) > 1}
    if not shared:
        return []
    group, names = next(iter(shared.items()))
    notes = [
        f"{place}: adapters are shared: {listed(names)} {_be(names)} nearest to accelerators "
        f"{', '.join(map(str, group))} alike"
    ]
    usual = min(len(names) for names in shared.values())
    for group, names in shared.items():
        if len(names) > usual:
            notes.append(
                f"{place}: accelerators {', '.join(map(str, group))} have {len(names)} adapters "
                f"near ({listed(names)}), others {usual}: one of them may serve storage"
            )
    return notes


def _is_reversed(order: Sequence[int]) -> bool:
    half = len(order) // 2
    return list(order) == sorted(order, reverse=True) or (
        sorted(order[:half], reverse=True) == list(order[:half])
        and sorted(order[half:], reverse=True) == list(order[half:])
    )


def _be(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"
