"""What `ibnetdiscover` prints: which adapters hang on which switches, and how switches are joined.

On a rail-optimised network a node's adapters hang on different leaves: nodes that share a leaf are
in one leaf group, and the group is the domain of the level `leaf`. Leaf groups that reach a
common switch are in one domain of `spine`, and so on until one domain is left.

Adapters that carry no node's name (`MT4129 ConnectX7 Mellanox Technologies`) belong to nodes that
are not known; aggregation nodes are parts of switches. Hosts named unlike the others (a manager, a
fresh image called `ubuntu`) are kept with the state `unknown`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from planner.clusters.cluster_facts import Reading, Said, level_name, listed
from planner.clusters.joined import joined
from planner.errors import InputError

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


@dataclass(slots=True)
class _Net:
    descriptions: dict[str, str] = field(default_factory=dict)
    records: dict[str, int] = field(default_factory=dict)  # line of the device's own record
    joined: dict[str, dict[str, int]] = field(default_factory=dict)  # device → neighbour → line
    speeds: Counter[str] = field(default_factory=Counter)

    def join(self, one: str, other: str, line: int) -> None:
        self.joined.setdefault(one, {}).setdefault(other, line)
        self.joined.setdefault(other, {}).setdefault(one, line)


def looks_like(text: str) -> bool:
    """Whether the text holds records of ibnetdiscover."""
    return any(_RECORD.match(line) for line in text.splitlines())


def read(text: str, path: str) -> Reading:
    """The nodes of the text, their leaf groups and what is above.

    Raises:
        InputError: a port before any device, or a line that is none of a record's, or no node.
    """
    net = _parsed(text, path)
    hosts: dict[str, set[str]] = {}  # node → leaves
    nameless = 0
    for device, description in net.descriptions.items():
        if not device.startswith("H-") or _AGGREGATION in description.lower():
            continue
        leaves = {d for d in net.joined.get(device, ()) if d.startswith("S-")}
        match = _HOST.fullmatch(description.strip())
        if match is None:
            nameless += 1
        else:
            hosts.setdefault(match[1], set()).update(leaves)
    if not hosts:
        raise InputError("no adapter carries a node's name", path=path, allowed=_ALLOWED)
    notes = _notes(net, path, nameless)
    said = list(_domains(net, hosts, path, notes))
    odd = _unlike(hosts)
    for name in odd:
        said.append(Said(name, "state", "unknown", "ibnetdiscover", path, None))
    if odd:
        notes.append(
            f"{path}: {listed(odd)} named unlike the other hosts (manager, storage or a fresh "
            "image?): state unknown, not eligible; another file can say that they are usable"
        )
    nodes = tuple(sorted(hosts))
    return Reading(path, "ibnetdiscover", nodes, tuple(said), notes=tuple(notes))


def _parsed(text: str, path: str) -> _Net:
    net = _Net()
    current: str | None = None
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not line or line.startswith("#") or re.match(r"\w+=", line):
            continue
        record = _RECORD.match(line)
        if record:
            current = record[2]
            net.descriptions[current] = record[3]
            net.records[current] = number
            continue
        port = _PORT.match(line)
        if port is None or current is None:
            raise InputError(
                "is neither a device nor a port of one", path=path, line=number, value=line[:60],
                allowed=_ALLOWED,
            )  # fmt: skip
        other, comment = port[1], port[2] or ""
        net.join(current, other, number)
        quoted = _QUOTED.search(comment)
        if quoted and other not in net.records:
            net.descriptions.setdefault(other, quoted[1])
        speed = _SPEED.search(comment)
        if speed and "H-" in (current[:2], other[:2]) and _AGGREGATION not in comment.lower():
            net.speeds[speed[1]] += 1
    return net


def _notes(net: _Net, path: str, nameless: int) -> list[str]:
    notes = []
    if nameless:
        notes.append(
            f"{path}: {nameless} adapters carry no node's name (a driver's default): the nodes "
            "they belong to are not known"
        )
    unlisted = [d for d in net.joined if d.startswith("S-") and d not in net.records]
    if unlisted:
        notes.append(
            f"{path}: {len(unlisted)} switches are named without a record of their own: an "
            "excerpt; nodes behind them are not known"
        )
    if net.speeds:
        shown = ", ".join(f"{count} of {speed}" for speed, count in net.speeds.most_common())
        notes.append(f"{path}: adapters' links: {shown}")
    return notes


def _domains(
    net: _Net, hosts: Mapping[str, set[str]], path: str, notes: list[str]
) -> Iterable[Said]:
    """Statements of every level, the leaf groups first."""
    leaves = {leaf for found in hosts.values() for leaf in found}
    groups = joined({node: hosts[node] for node in sorted(hosts) if hosts[node]})
    many = [g for g in groups if len({leaf for node in g for leaf in hosts[node]}) > 1]
    if many:
        notes.append(
            f"{path}: adapters of a node hang on several leaves (rails): the {len(many)} leaf "
            "groups that share leaves are the domains of the level leaf"
        )
    reach = [{leaf for node in group for leaf in hosts[node]} for group in groups]
    seen, height = set(leaves), 0
    while True:
        for group, switches in zip(groups, reach, strict=True):
            first, *more = sorted(_short(net.descriptions.get(s, s)) for s in switches)
            name = f"{first}+{len(more)}" if more else first
            line = min(net.records.get(s, 0) for s in switches) or None
            for node in sorted(group):
                yield Said(node, level_name(height), name, "ibnetdiscover", path, line)
        if len(groups) == 1:
            return
        # above the first level, switches must show themselves: unlisted ones may be leaves
        above = [
            {
                other
                for switch in switches
                for other in net.joined.get(switch, ())
                if other.startswith("S-")
                and other not in seen
                and (height == 0 or other in net.records)
            }
            for switches in reach
        ]
        if not all(above):
            return
        merged = joined(dict(enumerate(above)))
        groups = [[n for k in part for n in groups[k]] for part in merged]
        reach = [{s for k in part for s in above[k]} for part in merged]
        seen |= {s for found in reach for s in found}
        height += 1


def _short(description: str) -> str:
    """LEAF045 of `MF0;LEAF045:MQM9701/U1`."""
    return re.sub(r":.*", "", description.split(";")[-1]).strip() or description


def _unlike(hosts: Mapping[str, object]) -> list[str]:
    """Hosts whose name has no like (digits aside), where half of all share one pattern."""
    patterns = {name: re.sub(r"\d+", "#", name) for name in hosts}
    counts = Counter(patterns.values())
    most, times = counts.most_common(1)[0]
    if times * 2 <= len(hosts) or times < 4:
        return []
    return sorted(n for n, p in patterns.items() if p != most and counts[p] == 1)
