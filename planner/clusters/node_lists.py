"""Where each node is: lists of ClusterUUIDs or Slurm addresses, {node: switch} maps, inventories.

Lists have a line a node, as pdsh, clush or srun print what was asked of every node:

    node1: ClusterUUID : 8d5c...   and   node1: CliqueId : 3      (nvidia-smi -q)
    node1 8d5c....3                                               (uuid.clique, or node,uuid,clique)
    node1: SLURM_TOPOLOGY_ADDR=core.spine1.leaf3.node1            (with ..._PATTERN, if known)

A ClusterUUID of zeros or N/A is that of a fabric not set up: the domain stays unknown. A map gives
each node its switch, or its domain of each level by name; null stands for unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from planner.clusters.reading import SCALE_UP, Reading, Statement, in_words, level_name
from planner.errors import Place
from planner.inputs.documents import show
from planner.inputs.values import from_tree
from planner.inputs.yaml_text import read_yaml
from planner.problem.inventory import Inventory

_UUID = r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"
_LABEL = re.compile(r"([A-Za-z0-9][\w.-]*?)\s*:\s+(.*)")
_CLUSTER = re.compile(r"ClusterUUID\s*[:=]\s*(\S+)\s*$", re.IGNORECASE)
_CLIQUE = re.compile(r"CliqueId\s*[:=]\s*(\S+)\s*$", re.IGNORECASE)
_PAIR = re.compile(rf"([A-Za-z0-9][\w.-]*)[\s,:]+({_UUID}|N/A)(?:[.,\s]+(\d+))?\s*$")
_ADDRESS = re.compile(r"SLURM_TOPOLOGY_ADDR\s*=\s*\"?([^\s\"]+)\"?")
_PATTERN = re.compile(r"SLURM_TOPOLOGY_ADDR_PATTERN\s*=\s*\"?([^\s\"]+)\"?")
_OTHER_OF_NVIDIA_SMI = re.compile(r"[\w /-]+\s*:")
_ALLOWED = "lines with a node and its ClusterUUID, CliqueId or SLURM_TOPOLOGY_ADDR"
_MAP = "a mapping of node names to switches, or to mappings of levels to domains"


# ---------------------------------------------------------------- lists


@dataclass(frozen=True, slots=True)
class _Entry:
    value: str
    place: Place


@dataclass(slots=True)
class _Lists:
    """What lines say, by node."""

    clusters: dict[str, _Entry] = field(default_factory=dict)
    cliques: dict[str, _Entry] = field(default_factory=dict)
    addresses: dict[str, _Entry] = field(default_factory=dict)
    patterns: dict[str, str] = field(default_factory=dict)

    def add(self, line: str, place: Place) -> bool:
        """Add what a line says of a node; return whether it is a line of such a list."""
        node, rest = _split_label(line)
        pair = _PAIR.match(line)
        if pair:
            _add_once(self.clusters, pair[1], pair[2], place)
            if pair[3]:
                _add_once(self.cliques, pair[1], pair[3], place)
            return True
        address, pattern = _ADDRESS.search(rest), _PATTERN.search(rest)
        if address:
            node = node or address[1].rsplit(".", 1)[-1]
            _add_once(self.addresses, node, address[1], place)
        if node and pattern:
            self.patterns[node] = pattern[1]
        if address or (node and pattern):
            return True
        cluster, clique = _CLUSTER.search(rest), _CLIQUE.search(rest)
        if node and cluster:
            _add_once(self.clusters, node, cluster[1], place)
        elif node and clique:
            _add_once(self.cliques, node, clique[1], place)
        return bool(node and (cluster or clique or _OTHER_OF_NVIDIA_SMI.match(rest)))

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.clusters, *self.cliques, *self.addresses)))


def looks_like_a_list(text: str) -> bool:
    """Whether lines name ClusterUUIDs or Slurm addresses."""
    return any(
        _PAIR.match(line.strip()) or re.search(r"ClusterUUID|SLURM_TOPOLOGY_ADDR", line)
        for line in text.splitlines()
        if not line.lstrip().startswith("#")
    )


def read_list(text: str, path: str) -> Reading:
    """Return the nodes of a list and their domains.

    Raises:
        InputError: a line says nothing of a node, two lines contradict each other, or an address
            does not fit its pattern.
    """
    lists = _Lists()
    for number, raw in enumerate(text.splitlines(), 1):
        line, place = raw.strip(), Place(path, number)
        if line and not line.startswith("#") and not lists.add(line, place):
            raise place.error("places no node", value=line[:60], allowed=_ALLOWED)
    if not lists.nodes:
        raise Place(path).error("no node is named", allowed=_ALLOWED)
    statements = (*_of_cluster_uuids(lists), *_of_addresses(lists))
    return Reading(path, "addresses", lists.nodes, statements, notes=_unset_notes(lists, path))


def _split_label(line: str) -> tuple[str | None, str]:
    """Return the node that a line begins with, if any, and the rest."""
    match = _LABEL.match(line)
    if match and not re.fullmatch(r"ClusterUUID|CliqueId", match[1], re.IGNORECASE):
        return match[1], match[2]
    words = line.split(None, 1)
    if len(words) == 2 and words[1].startswith("SLURM_TOPOLOGY_ADDR"):
        return words[0], words[1]
    return None, line


def _add_once(into: dict[str, _Entry], node: str, value: str, place: Place) -> None:
    first = into.setdefault(node, _Entry(value, place))
    if first.value != value:  # every GPU of a node says the same
        raise place.error(
            f"node {node} says {value}, and {first.value} on line {first.place.line}",
            value=value,
            allowed="one domain a node",
        )


def _is_set(uuid: str) -> bool:
    return bool(re.fullmatch(_UUID, uuid) and uuid.strip("0-"))


def _of_cluster_uuids(lists: _Lists) -> Iterator[Statement]:
    """Yield the NVLink domains: a ClusterUUID, and within it a clique."""
    for node, entry in lists.clusters.items():
        if _is_set(entry.value):
            clique = lists.cliques.get(node)
            domain = entry.value.lower() + (f".{clique.value}" if clique else "")
            yield Statement(node, SCALE_UP, domain, "ClusterUUID", entry.place)


def _unset_notes(lists: _Lists, path: str) -> tuple[str, ...]:
    unset = [node for node, entry in lists.clusters.items() if not _is_set(entry.value)]
    unset += [node for node in lists.cliques if node not in lists.clusters]
    if not unset:
        return ()
    return (f"{path}: {in_words(unset)}: no ClusterUUID is set, the domain is unknown",)


def _of_addresses(lists: _Lists) -> Iterator[Statement]:
    """Yield the domains that Slurm's addresses name, the nearest one first."""
    for node, entry in lists.addresses.items():
        names = entry.value.split(".")
        default = ".".join(["switch"] * (len(names) - 1) + ["node"])
        kinds = lists.patterns.get(node, default).split(".")
        if len(kinds) != len(names) or not all(names) or names[-1] != node or len(names) < 2:
            raise entry.place.error(
                f"the address {entry.value} of node {node} does not fit {'.'.join(kinds)}",
                value=entry.value,
                allowed="switch.switch.node, or block.node",
            )
        height = 0
        for kind, name in reversed([*zip(kinds[:-1], names[:-1], strict=True)]):
            if kind == "block":
                yield Statement(node, SCALE_UP, name, "Slurm blocks", entry.place)
            else:
                yield Statement(node, level_name(height), name, "Slurm switches", entry.place)
                height += 1


# ---------------------------------------------------------------- maps and inventories


def read_map(text: str, path: str) -> Reading:
    """Return the nodes of a {node: switch} map, or a {node: {level: domain}} map.

    Raises:
        InputError: not YAML or JSON, not a mapping, or values that are no names.
    """
    root = read_yaml(text, path)
    if not isinstance(root.value, Mapping) or not root.value:
        raise root.place.error("is not a mapping", allowed=_MAP)
    statements: list[Statement] = []
    num_switches = 0
    for node, child in root.value.items():
        if isinstance(child.value, Mapping):
            domains = child.value
        else:
            domains = {level_name(0): child}
            num_switches += 1
        for level, domain in domains.items():
            value = domain.value
            if isinstance(value, bool | float | tuple | Mapping) or value == "":
                shown = show(domain.plain())
                raise domain.error(f"{shown} is not the name of a switch or domain", allowed=_MAP)
            if value is not None:
                statements.append(Statement(node, level, str(value), "map", domain.place))
    notes = []
    if num_switches:
        notes.append(f"{path}: the names beside {num_switches} nodes are read as leaf switches")
    return Reading(path, "map", tuple(root.value), tuple(statements), notes=tuple(notes))


def read_inventory(text: str, path: str) -> Reading:
    """Return the nodes of an inventory, to be merged with other files: what it says stands.

    Raises:
        InputError: not an inventory.
    """
    root = read_yaml(text, path)
    inventory = from_tree(root, Inventory)
    statements: list[Statement] = []
    for position, node in enumerate(inventory.nodes):
        tree = root.descendant("nodes", position)
        assert tree is not None
        facts = {"accelerators": node.accelerators, "address": node.address, **node.domains}
        if tree.child("state") is not None:  # a state that is left out is not a statement
            facts["state"] = node.state
        statements += [
            Statement(node.name, key, value, "inventory", tree.place)
            for key, value in facts.items()
            if value is not None
        ]
    nodes = tuple(node.name for node in inventory.nodes)
    return Reading(path, "inventory", nodes, tuple(statements))
