"""Plain statements of where nodes are: {node: switch} maps, ClusterUUID and Slurm address lists.

A map gives each node its switch, or its domain of each level by name; null stands for unknown.
Lists have a line a node, as pdsh, clush or srun print what was asked of every node:

    node1: ClusterUUID : 8d5c...   and   node1: CliqueId : 3      (nvidia-smi -q)
    node1 8d5c....3                                               (uuid.clique, or node,uuid,clique)
    node1: SLURM_TOPOLOGY_ADDR=core.spine1.leaf3.node1            (with ..._PATTERN, if known)

A ClusterUUID of zeros or N/A is that of a fabric not set up: the domain stays unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from planner.clusters.cluster_facts import SCALE_UP, Reading, Said, level_name, listed
from planner.errors import InputError
from planner.inputs.documents import Node
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
_ALLOWED = "lines with a node and its ClusterUUID, CliqueId or SLURM_TOPOLOGY_ADDR"
_MAP = "a mapping of node names to switches, or to mappings of levels to domains"


def looks_like_a_list(text: str) -> bool:
    """Whether lines name ClusterUUIDs or Slurm addresses."""
    return any(
        _PAIR.match(line.strip()) or re.search(r"ClusterUUID|SLURM_TOPOLOGY_ADDR", line)
        for line in text.splitlines()
        if not line.lstrip().startswith("#")
    )


def read_list(text: str, path: str) -> Reading:
    """The nodes of a list.

    Raises:
        InputError: a line is none of the three kinds, names no node, or says two things.
    """
    clusters: dict[str, tuple[str, int]] = {}
    cliques: dict[str, tuple[str, int]] = {}
    addresses: dict[str, tuple[str, int]] = {}
    patterns: dict[str, str] = {}
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        node, rest = _named(line)
        pair = _PAIR.match(line)
        address, pattern = _ADDRESS.search(rest), _PATTERN.search(rest)
        cluster, clique = _CLUSTER.search(rest), _CLIQUE.search(rest)
        if pair:
            _once(clusters, pair[1], pair[2], path, number)
            if pair[3]:
                _once(cliques, pair[1], pair[3], path, number)
        elif address:
            last = address[1].rsplit(".", 1)[-1]
            _once(addresses, node or last, address[1], path, number)
            if pattern:
                patterns[node or last] = pattern[1]
        elif node and pattern:
            patterns[node] = pattern[1]
        elif node and (cluster or clique):
            if cluster:
                _once(clusters, node, cluster[1], path, number)
            elif clique:
                _once(cliques, node, clique[1], path, number)
        elif not (node and re.match(r"[\w /-]+\s*:", rest)):  # another line of nvidia-smi -q
            raise InputError(
                "places no node", path=path, line=number, value=line[:60], allowed=_ALLOWED
            )
    notes: list[str] = []
    said = [*_uuids(clusters, cliques, path, notes), *_addresses(addresses, patterns, path)]
    nodes = tuple(dict.fromkeys((*clusters, *cliques, *addresses)))
    if not nodes:
        raise InputError("no node is named", path=path, allowed=_ALLOWED)
    return Reading(path, "addresses", nodes, tuple(said), notes=tuple(notes))


def _named(line: str) -> tuple[str | None, str]:
    match = _LABEL.match(line)
    if match and not re.fullmatch(r"ClusterUUID|CliqueId", match[1], re.IGNORECASE):
        return match[1], match[2]
    words = line.split(None, 1)
    if len(words) == 2 and words[1].startswith("SLURM_TOPOLOGY_ADDR"):
        return words[0], words[1]
    return None, line


def _once(into: dict[str, tuple[str, int]], node: str, value: str, path: str, line: int) -> None:
    first = into.setdefault(node, (value, line))
    if first[0] != value:  # every GPU of a node says the same
        raise InputError(
            f"node {node} says {value}, and {first[0]} on line {first[1]}", path=path, line=line,
            value=value, allowed="one domain a node",
        )  # fmt: skip


def _uuids(
    clusters: Mapping[str, tuple[str, int]],
    cliques: Mapping[str, tuple[str, int]],
    path: str,
    notes: list[str],
) -> Iterator[Said]:
    unset = []
    for node, (uuid, line) in clusters.items():
        if not re.fullmatch(_UUID, uuid) or not uuid.strip("0-"):
            unset.append(node)
            continue
        domain = f"{uuid.lower()}.{cliques[node][0]}" if node in cliques else uuid.lower()
        yield Said(node, SCALE_UP, domain, "ClusterUUID", path, line)
    unset += [node for node in cliques if node not in clusters]
    if unset:
        notes.append(f"{path}: {listed(unset)}: no ClusterUUID is set, the domain is unknown")


def _addresses(
    addresses: Mapping[str, tuple[str, int]], patterns: Mapping[str, str], path: str
) -> Iterator[Said]:
    for node, (address, line) in addresses.items():
        parts = address.split(".")
        kinds = patterns.get(node, ".".join(["switch"] * (len(parts) - 1) + ["node"])).split(".")
        if len(kinds) != len(parts) or not all(parts) or parts[-1] != node or len(parts) < 2:
            raise InputError(
                f"the address {address} of node {node} does not fit {'.'.join(kinds)}",
                path=path, line=line, value=address, allowed="switch.switch.node, or block.node",
            )  # fmt: skip
        height = 0
        for kind, part in reversed([*zip(kinds[:-1], parts[:-1], strict=True)]):
            if kind == "block":
                yield Said(node, SCALE_UP, part, "Slurm blocks", path, line)
            else:
                yield Said(node, level_name(height), part, "Slurm switches", path, line)
                height += 1


# --- maps and inventories -------------------------------------------------------------------------


def read_map(text: str, path: str) -> Reading:
    """The nodes of a {node: switch} map.

    Raises:
        InputError: not YAML or JSON, or values that are no names.
    """
    root = read_yaml(text, path)
    if not isinstance(root.value, Mapping) or not root.value:
        raise InputError("is not a mapping", path=path, line=root.line, allowed=_MAP)
    said: list[Said] = []
    plain = 0
    for node, child in root.value.items():
        if isinstance(child.value, Mapping):
            parts = child.value.items()
        else:
            parts = {level_name(0): child}.items()
            plain += 1
        for level, domain in parts:
            value = domain.value
            if isinstance(value, bool | float | tuple | Mapping) or value == "":
                raise InputError(
                    "is not the name of a switch or domain", path=path, line=domain.line,
                    key=domain.key, value=domain.plain(), allowed=_MAP,
                )  # fmt: skip
            if value is not None:
                said.append(Said(node, level, str(value), "map", path, domain.line))
    notes = [f"{path}: the names beside {plain} nodes are read as leaf switches"] if plain else []
    return Reading(path, "map", tuple(root.value), tuple(said), notes=tuple(notes))


def read_inventory(text: str, path: str) -> Reading:
    """An inventory of ours, to be merged with other files: what it says stands."""
    root = read_yaml(text, path)
    found = from_tree(root, Inventory, {})
    said: list[Said] = []
    tree: Node | None = root.child("nodes")
    for position, node in enumerate(found.nodes):
        at = tree.child(position) if tree is not None else None
        line = at.line if at is not None else None
        given = {"accelerators": node.accelerators, "address": node.address, **node.domains}
        if at is not None and at.child("state") is not None:
            given["state"] = node.state
        said += [
            Said(node.name, key, value, "inventory", path, line)
            for key, value in given.items()
            if value is not None
        ]
    return Reading(path, "inventory", tuple(n.name for n in found.nodes), tuple(said))
