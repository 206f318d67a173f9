"""What `ibnetdiscover` prints: which adapters hang on which switches, and how switches are linked.

On a rail-optimised network a node's adapters hang on different leaves: nodes that share a leaf are
in one leaf group, and the group is the domain of the level `leaf`. Leaf groups that reach a
common switch are in one domain of `spine`, and so on until one domain is left.

Adapters that carry no node's name (`MT4129 ConnectX7 Mellanox Technologies`) belong to nodes that
are not known; aggregation nodes are parts of switches. Hosts named unlike the others (a manager, a
fresh image called `ubuntu`) get the state `unknown`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from planner.clusters.reading import Reading, Statement, connected_groups, in_words, level_name
from planner.errors import Place

_RECORD = re.compile(r'(Switch|Ca|Rt)\s+\d+\s+"([^"]+)"\s*#\s*"([^"]*)"')
_PORT = re.compile(
    r'\[\d+\](?:\([0-9a-fA-F]+\))?(?:\[ext \d+\])?\s+"([^"]+)"\[\d+\]'
    r"(?:\([0-9a-fA-F]+\))?\s*(?:#\s*(.*))?$"
)
_QUOTED = re.compile(r'"([^"]*)"')
_SPEED = re.compile(r"\b(\d+x[A-Z]+\d*)\b")
_HOST = re.compile(r"([A-Za-z0-9][\w.-]*)\s+(?:HCA-\d+|mlx\d+_\w+|ib\w*\d+|[a-z]+\d+_\d+)")
_ALLOWED = "what `ibnetdiscover` prints"
_AGGREGATION = "aggregation node"
_NAMING = "ibnetdiscover"


@dataclass(slots=True)
class _Network:
    """Devices by their id: 'H-...' of adapters, 'S-...' of switches.

    Attributes:
        descriptions: of each device, such as 'MF0;LEAF045:MQM9701/U1' or 'node1 HCA-1'.
        records: line of the device's own record.
        neighbours: device → the devices that a cable links it to → line of the cable.
        speeds: cables of adapters by speed, such as '4xNDR'.
    """

    descriptions: dict[str, str] = field(default_factory=dict)
    records: dict[str, int] = field(default_factory=dict)
    neighbours: dict[str, dict[str, int]] = field(default_factory=dict)
    speeds: Counter[str] = field(default_factory=Counter)

    def link(self, one: str, other: str, line: int) -> None:
        self.neighbours.setdefault(one, {}).setdefault(other, line)
        self.neighbours.setdefault(other, {}).setdefault(one, line)

    def switches_at(self, device: str) -> set[str]:
        """Return the switches that a device is linked to."""
        return {other for other in self.neighbours.get(device, ()) if other.startswith("S-")}


def looks_like(text: str) -> bool:
    """Whether the text contains records of ibnetdiscover."""
    return any(_RECORD.match(line) for line in text.splitlines())


def read(text: str, path: str) -> Reading:
    """Return the nodes of the text, their leaf groups and the domains above.

    Raises:
        InputError: a port before any device, a line that belongs to no record, or no node.
    """
    network = _parsed(text, path)
    leaves_of: dict[str, set[str]] = {}  # node → the switches that its adapters hang on
    num_nameless = 0
    for device, description in network.descriptions.items():
        if not device.startswith("H-") or _AGGREGATION in description.lower():
            continue
        match = _HOST.fullmatch(description.strip())
        if match is None:
            num_nameless += 1
        else:
            leaves_of.setdefault(match[1], set()).update(network.switches_at(device))
    if not leaves_of:
        raise Place(path).error("no adapter carries a node's name", allowed=_ALLOWED)
    notes = _notes(network, path, num_nameless)
    statements = list(_domains(network, leaves_of, path, notes))
    strangers = _named_unlike_others(leaves_of)
    statements += [Statement(node, "state", "unknown", _NAMING, Place(path)) for node in strangers]
    if strangers:
        notes.append(
            f"{path}: {in_words(strangers)} named unlike the other hosts (manager, storage or a "
            "fresh image?): state unknown, not eligible; another file can say that they are usable"
        )
    return Reading(
        path, "ibnetdiscover", tuple(sorted(leaves_of)), tuple(statements), notes=tuple(notes)
    )


def _parsed(text: str, path: str) -> _Network:
    network = _Network()
    device: str | None = None  # whose record the lines are of
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not line or line.startswith("#") or re.match(r"\w+=", line):
            continue
        record = _RECORD.match(line)
        if record:
            device = record[2]
            network.descriptions[device] = record[3]
            network.records[device] = number
            continue
        port = _PORT.match(line)
        if port is None or device is None:
            raise Place(path, number).error(
                "is neither a device nor a port of one", value=line[:60], allowed=_ALLOWED
            )
        other, comment = port[1], port[2] or ""
        network.link(device, other, number)
        quoted = _QUOTED.search(comment)
        if quoted and other not in network.records:
            network.descriptions.setdefault(other, quoted[1])
        speed = _SPEED.search(comment)
        is_adapter = "H-" in (device[:2], other[:2])
        if speed and is_adapter and _AGGREGATION not in comment.lower():
            network.speeds[speed[1]] += 1
    return network


def _notes(network: _Network, path: str, num_nameless: int) -> list[str]:
    notes = []
    if num_nameless:
        notes.append(
            f"{path}: {num_nameless} adapters carry no node's name (a driver's default): the nodes "
            "they belong to are not known"
        )
    unlisted = [
        device
        for device in network.neighbours
        if device.startswith("S-") and device not in network.records
    ]
    if unlisted:
        notes.append(
            f"{path}: {len(unlisted)} switches are named without a record of their own: an "
            "excerpt; nodes behind them are not known"
        )
    if network.speeds:
        shown = ", ".join(f"{count} of {speed}" for speed, count in network.speeds.most_common())
        notes.append(f"{path}: adapters' links: {shown}")
    return notes


# ---------------------------------------------------------------- domains


def _domains(
    network: _Network, leaves_of: Mapping[str, set[str]], path: str, notes: list[str]
) -> Iterator[Statement]:
    """Yield the domain of every node and level, the leaf groups first."""
    placed = {node: leaves_of[node] for node in sorted(leaves_of) if leaves_of[node]}
    groups = connected_groups(placed)
    switches_of = [_union(leaves_of[node] for node in group) for group in groups]
    num_on_rails = sum(len(switches) > 1 for switches in switches_of)
    if num_on_rails:
        notes.append(
            f"{path}: adapters of a node hang on several leaves (rails): the {num_on_rails} leaf "
            "groups that share leaves are the domains of the level leaf"
        )
    seen, height = _union(leaves_of.values()), 0
    while True:
        for group, switches in zip(groups, switches_of, strict=True):
            yield from _domain(network, group, switches, level_name(height), path)
        if len(groups) <= 1:
            return
        above = [_switches_above(network, switches, seen, height) for switches in switches_of]
        if not all(above):
            return
        merged = connected_groups(dict(enumerate(above)))
        groups = [[node for k in numbers for node in groups[k]] for numbers in merged]
        switches_of = [_union(above[k] for k in numbers) for numbers in merged]
        seen |= _union(switches_of)
        height += 1


def _domain(
    network: _Network, nodes: Iterable[str], switches: set[str], level: str, path: str
) -> Iterator[Statement]:
    """Yield that these nodes are in one domain, which is named after its switches."""
    first, *others = sorted(_short(network.descriptions.get(switch, switch)) for switch in switches)
    name = f"{first}+{len(others)}" if others else first
    line = min(network.records.get(switch, 0) for switch in switches) or None
    for node in sorted(nodes):
        yield Statement(node, level, name, _NAMING, Place(path, line))


def _switches_above(network: _Network, switches: set[str], seen: set[str], height: int) -> set[str]:
    """Return the switches that those of a domain reach and that are in no lower level.

    Above the first level they must have a record of their own: others may be leaves, whose nodes
    the excerpt leaves out.
    """
    reached = _union(network.switches_at(switch) for switch in switches) - seen
    return {switch for switch in reached if height == 0 or switch in network.records}


def _union(sets: Iterable[set[str]]) -> set[str]:
    return set().union(*sets)


def _short(description: str) -> str:
    """Return LEAF045 of `MF0;LEAF045:MQM9701/U1`."""
    return re.sub(r":.*", "", description.split(";")[-1]).strip() or description


def _named_unlike_others(hosts: Iterable[str]) -> list[str]:
    """Return hosts whose name is like no other's, digits aside, where half of all are alike."""
    patterns = {name: re.sub(r"\d+", "#", name) for name in hosts}
    counts = Counter(patterns.values())
    usual, times = counts.most_common(1)[0]
    if times * 2 <= len(patterns) or times < 4:
        return []
    return sorted(
        name for name, pattern in patterns.items() if pattern != usual and counts[pattern] == 1
    )
