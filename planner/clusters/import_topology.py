"""Files of a cluster → its inventory, and its topology where enough is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, get_args

from planner.clusters.formats import read_file
from planner.clusters.merge import (
    ByNode,
    Level,
    MergedCluster,
    merged_domains,
    merged_facts,
    merged_hardware,
    without_overridden,
)
from planner.clusters.node_hardware import topology_notes
from planner.clusters.reading import SCALE_UP, NodeHardware, Reading, in_words, level_name
from planner.clusters.write_files import inventory_yaml, topology_yaml
from planner.errors import InputError
from planner.inputs.files import resolve
from planner.inputs.values import load
from planner.problem.inventory import Inventory, InventoryNode, NodeState
from planner.problem.topology import Topology


@dataclass(frozen=True, slots=True)
class Imported:
    """What files of a cluster say together.

    Attributes:
        inventory: None where no node is named.
        topology: YAML text; None without a topology that the cluster is like.
        hardware: the inside of the nodes, from files that do not say which node they show.
        asks: what must be said before a job can be planned on the cluster.
        notes: what was assumed or found odd, in words.
        formats: path → format.
    """

    inventory: Inventory | None
    topology: str | None
    hardware: NodeHardware | None
    asks: tuple[str, ...]
    notes: tuple[str, ...]
    formats: Mapping[str, str]

    def to_document(self) -> dict[str, Any]:
        """Return the import as JSON values."""
        return {
            "formats": dict(self.formats),
            "inventory": self.inventory and self.inventory.model_dump(mode="json"),
            "topology": self.topology,
            "asks": list(self.asks),
            "notes": list(self.notes),
        }


def import_topology(
    files: Sequence[str | Path],
    like: str | Path | None = None,
    accelerators: int | None = None,
    name: str = "imported",
    format_: str | None = None,
) -> Imported:
    """Read files of a cluster and merge them by node.

    Args:
        like: the topology, by name or path, whose accelerator and fabrics the cluster has.
        accelerators: of each node that no file counts.
        name: of the inventory and the topology.
        format_: of all files; without it each file's content tells.

    Raises:
        InputError: a file is wrong or of no known format, or files contradict each other.
    """
    topology = None if like is None else load(like, "topology", Topology)
    every = [read_file(path, format_) for path in files]
    notes: list[str] = []
    readings = without_overridden(every, notes)
    notes += [note for reading in readings for note in reading.notes]
    cluster = _merged(readings, topology, accelerators, name, notes)
    notes += _unplaced_notes(cluster)
    notes += topology_notes(topology, cluster.hardware)
    text = None
    if topology is not None and like is not None:
        text = topology_yaml(topology, resolve("topology", like), cluster, notes)
    return Imported(
        inventory=_inventory(cluster),
        topology=text,
        hardware=cluster.hardware,
        asks=tuple(_asks(cluster, topology)),
        notes=tuple(dict.fromkeys(notes)),
        formats={reading.path: reading.format for reading in every},
    )


def imported_files(imported: Imported, name: str) -> dict[str, str]:
    """Return file name → text: the inventory as `name`, the topology beside it."""
    path = Path(name)
    files = {}
    if imported.inventory is not None:
        files[name] = inventory_yaml(imported.inventory)
    if imported.topology is not None:
        files[f"{path.stem}-topology{path.suffix or '.yaml'}"] = imported.topology
    return files


# ---------------------------------------------------------------- merging


def _merged(
    readings: Sequence[Reading],
    topology: Topology | None,
    accelerators: int | None,
    name: str,
    notes: list[str],
) -> MergedCluster:
    hardware = merged_hardware(readings)
    tier_names = _tier_names(topology)
    facts = merged_facts(readings)
    level_of = {tier: level for level, tier in tier_names.items()}
    placed = merged_domains(readings, level_of, notes)
    nodes = tuple(dict.fromkeys(node for reading in readings for node in reading.nodes))
    states = facts["state"]
    known_nodes = _known(nodes, states)
    counts = _accelerator_counts(known_nodes, facts["accelerators"], hardware, accelerators, notes)
    scale_up = _scale_up_domains(nodes, placed.get(SCALE_UP, {}), counts, topology, notes)
    levels = [Level(SCALE_UP, tier_names[SCALE_UP], scale_up)] if scale_up or topology else []
    levels += [
        Level(
            level,
            tier_names.get(level, level),
            {node: str(statement.value) for node, statement in statements.items()},
        )
        for level, statements in placed.items()
        if level != SCALE_UP
    ]
    return MergedCluster(
        name=name,
        source="; ".join(f"{Path(r.path).name} ({r.format})" for r in readings),
        nodes=nodes,
        levels=tuple(levels),
        accelerators=counts,
        states=states,
        addresses=facts["address"],
        hardware=hardware,
    )


def _known(nodes: Sequence[str], states: ByNode) -> list[str]:
    """Return the nodes that are not in the state `unknown`."""
    return [node for node in nodes if node not in states or states[node].value != "unknown"]


def _tier_names(topology: Topology | None) -> dict[str, str]:
    """Return level → tier of the topology: the outermost scale-up tier, then the networks."""
    if topology is None:
        return {SCALE_UP: SCALE_UP}
    scale_up = [tier.name for tier in topology.tiers if tier.fabric.kind == "scale-up"]
    networks = [tier.name for tier in topology.tiers if tier.fabric.kind == "network"]
    inner = {SCALE_UP: scale_up[-1] if scale_up else SCALE_UP}
    return inner | {level_name(height): tier for height, tier in enumerate(networks)}


def _scale_up_width(topology: Topology) -> int:
    """Return the accelerators of a scale-up domain."""
    return prod(tier.width for tier in topology.tiers if tier.fabric.kind == "scale-up")


def _accelerator_counts(
    nodes: Sequence[str],
    statements: ByNode,
    hardware: NodeHardware | None,
    given: int | None,
    notes: list[str],
) -> dict[str, int]:
    """Return the accelerators of every node that is known to have some.

    Raises:
        InputError: the number given, the hardware shown and the statements do not agree.
    """
    counts = {node: int(statements[node].value) for node in nodes if node in statements}
    uncounted = [node for node in nodes if node not in counts]
    if hardware is not None:
        _check_counts(statements, hardware, given)
        if uncounted:
            notes.append(
                f"{hardware.place.path} names no node: its {hardware.accelerators} accelerators "
                f"are taken for each of {len(uncounted)} nodes"
            )
    usual = hardware.accelerators if hardware is not None else given
    return counts | (dict.fromkeys(uncounted, usual) if usual else {})


def _check_counts(statements: ByNode, hardware: NodeHardware, given: int | None) -> None:
    path, shown = hardware.place.path, hardware.accelerators
    if given not in (None, shown):
        raise InputError(
            f"{given} accelerators a node are given, {path} shows {shown}",
            path=path, line=hardware.place.line, key="--accelerators", value=given,
            allowed=str(shown),
        )  # fmt: skip
    for node, statement in statements.items():
        if statement.value != shown:
            raise InputError(
                f"node {node} has {statement.value} accelerators here, {path} shows "
                f"{shown} without saying of which node",
                path=statement.place.path, line=statement.place.line,
                allowed="files that agree",
            )  # fmt: skip


def _scale_up_domains(
    nodes: Sequence[str],
    statements: ByNode,
    counts: Mapping[str, int],
    topology: Topology | None,
    notes: list[str],
) -> dict[str, str]:
    """Return node → scale-up domain: as stated, or itself where it is as wide as a domain.

    Raises:
        InputError: a domain is wider than the topology's.
    """
    domains = {node: str(statement.value) for node, statement in statements.items()}
    if topology is None:
        return domains
    width = _scale_up_width(topology)
    totals: dict[str, int] = {}
    for node, domain in domains.items():
        totals[domain] = totals.get(domain, 0) + counts.get(node, 0)
        if totals[domain] > width:
            place = statements[node].place
            raise InputError(
                f"{domain} joins more than the {width} accelerators of a scale-up domain of "
                f"{topology.name}",
                path=place.path, line=place.line, value=domain,
                allowed="--like a topology whose scale-up domains are as large; without the file "
                "if its blocks are racks",
            )  # fmt: skip
    if domains:
        return domains
    own = [node for node in nodes if counts.get(node) == width]
    if own:
        notes.append(
            f"a node's {width} accelerators are a whole scale-up domain of {topology.name}: "
            "every node is one"
        )
    return {node: node for node in own}


# ---------------------------------------------------------------- what comes of it


def _inventory(cluster: MergedCluster) -> Inventory | None:
    if not cluster.nodes:
        return None
    states: dict[str, NodeState] = {state: state for state in get_args(NodeState)}
    return Inventory(
        name=cluster.name,
        source=cluster.source,
        tiers=tuple(level.tier for level in cluster.levels) or (SCALE_UP,),
        nodes=tuple(
            InventoryNode(
                name=node,
                accelerators=cluster.accelerators.get(node),
                domains={
                    level.tier: level.domains[node]
                    for level in cluster.levels
                    if node in level.domains
                },
                state=states[str(cluster.states[node].value)]
                if node in cluster.states
                else "usable",
                address=str(cluster.addresses[node].value) if node in cluster.addresses else None,
            )
            for node in cluster.nodes
        ),
    )


def _unplaced_notes(cluster: MergedCluster) -> list[str]:
    notes = []
    for level in cluster.levels:
        missing = [node for node in cluster.nodes if node not in level.domains]
        if missing and level.domains:
            notes.append(f"{level.tier} domain unknown, not eligible: {in_words(missing)}")
    return notes


def _asks(cluster: MergedCluster, topology: Topology | None) -> list[str]:
    """Return what must be said before a job can be planned, each as a question with its answer."""
    nodes, levels = _known(cluster.nodes, cluster.states), cluster.levels
    asks = []
    if not nodes:
        asks.append("which nodes there are: no file names one (a Slurm topology, a map, labels)")
    uncounted = [node for node in nodes if node not in cluster.accelerators]
    if uncounted:
        asks.append(
            f"how many accelerators a node has ({in_words(uncounted, 4)}): --accelerators N, or "
            "`nvidia-smi topo -m` of a node"
        )
    if topology is None:
        asks.append("which accelerator and fabrics these are: --like NAME, a topology")
    elif nodes and levels and not levels[0].domains and not uncounted:
        asks.append(
            f"which nodes share a {levels[0].tier} domain: {topology.name} has "
            f"{_scale_up_width(topology)} accelerators in one, a node has "
            f"{cluster.accelerators[nodes[0]]} (ClusterUUID, blocks, labels), or another --like"
        )
    return asks
