"""Files of a cluster → its inventory, and its topology where enough is known."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, get_args

from planner.clusters import merge as merging
from planner.clusters.cluster_facts import SCALE_UP, Host, Said, level_name, listed
from planner.clusters.readers import read_file
from planner.clusters.write_topology import Level, topology_notes, topology_text
from planner.errors import InputError
from planner.inputs.values import load
from planner.problem.inventory import Inventory, InventoryNode, NodeState
from planner.problem.topology import Topology


@dataclass(frozen=True, slots=True)
class Imported:
    """What files of a cluster say together.

    inventory: None where no node is named. topology: YAML text, None without `like`. asks: what
    must be said before a job can be planned on it. formats: path → format.
    """

    inventory: Inventory | None
    topology: str | None
    host: Host | None
    asks: tuple[str, ...]
    notes: tuple[str, ...]
    formats: Mapping[str, str]

    def to_document(self) -> dict[str, Any]:
        """The import as JSON values."""
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

    like: the topology, by name or path, whose accelerator and fabrics the cluster has.
    accelerators: of each node that no file counts.

    Raises:
        InputError: a file is wrong or of no known format, or files contradict each other.
    """
    shape = None if like is None else load(like, "topology", Topology)
    notes: list[str] = []
    every = [read_file(path, format_) for path in files]
    readings = merging.effective(every, notes)
    notes += [note for reading in readings for note in reading.notes]
    host = merging.one_host(readings)
    names = _tier_names(shape)
    facts = merging.facts(readings)
    placed = merging.placed(readings, {tier: level for level, tier in names.items()}, notes)
    nodes = list(dict.fromkeys(node for reading in readings for node in reading.nodes))
    strange = {node for node, said in facts["state"].items() if said.value == "unknown"}
    known = [node for node in nodes if node not in strange]
    counts = _counts(known, facts["accelerators"], host, accelerators, notes)
    scale_up = _scale_up(nodes, placed, counts, shape, notes)
    levels = [Level(SCALE_UP, names[SCALE_UP], scale_up)] if scale_up or shape else []
    levels += [
        Level(level, names.get(level, level), {n: str(s.value) for n, s in found.items()})
        for level, found in placed.items()
        if level != SCALE_UP
    ]
    source = "; ".join(f"{Path(r.path).name} ({r.format})" for r in readings)
    inventory = _inventory(nodes, levels, facts, counts, name, source)
    notes += _unplaced(nodes, levels)
    notes += topology_notes(shape, host)
    return Imported(
        inventory=inventory,
        topology=None if shape is None or like is None
        else topology_text(like, shape, levels, counts, host, name, source, notes),
        host=host,
        asks=tuple(_asks(known, levels, counts, shape)),
        notes=tuple(dict.fromkeys(notes)),
        formats={reading.path: reading.format for reading in every},
    )  # fmt: skip


def _tier_names(shape: Topology | None) -> dict[str, str]:
    """Level → the tier's name in the topology: the outermost scale-up tier, then the networks."""
    if shape is None:
        return {SCALE_UP: SCALE_UP}
    scale_up = [tier.name for tier in shape.tiers if tier.fabric.kind == "scale-up"]
    networks = [tier.name for tier in shape.tiers if tier.fabric.kind == "network"]
    inner = {SCALE_UP: scale_up[-1] if scale_up else SCALE_UP}
    return inner | {level_name(k): tier for k, tier in enumerate(networks)}


def _counts(
    nodes: Sequence[str],
    said: Mapping[str, Said],
    host: Host | None,
    given: int | None,
    notes: list[str],
) -> dict[str, int]:
    """Accelerators of every node that is known to have some."""
    found = {node: int(said[node].value) for node in nodes if node in said}
    rest = [node for node in nodes if node not in found]
    usual = host.accelerators if host is not None else given
    if host is not None and given not in (None, host.accelerators):
        raise InputError(
            f"{given} accelerators a node are given, {host.path} shows {host.accelerators}",
            path=host.path, line=host.line, key="--accelerators", value=given,
            allowed=str(host.accelerators),
        )  # fmt: skip
    if host is not None:
        for node, statement in said.items():
            if statement.value != host.accelerators:
                raise InputError(
                    f"node {node} has {statement.value} accelerators here, {host.path} shows "
                    f"{host.accelerators} without saying of which node",
                    path=statement.path, line=statement.line, allowed="files that agree",
                )  # fmt: skip
        if rest:
            notes.append(
                f"{host.path} names no node: its {host.accelerators} accelerators are taken for "
                f"each of {len(rest)} nodes"
            )
    return found | (dict.fromkeys(rest, usual) if usual else {})


def _scale_up(
    nodes: Sequence[str],
    placed: Mapping[str, Mapping[str, Said]],
    counts: Mapping[str, int],
    shape: Topology | None,
    notes: list[str],
) -> dict[str, str]:
    """Node → its scale-up domain: as said, or itself where it is as wide as a whole domain."""
    said = placed.get(SCALE_UP, {})
    found = {node: str(statement.value) for node, statement in said.items()}
    if shape is None:
        return found
    width = prod(tier.width for tier in shape.tiers if tier.fabric.kind == "scale-up")
    totals: dict[str, int] = {}
    for node, domain in found.items():
        totals[domain] = totals.get(domain, 0) + counts.get(node, 0)
        if totals[domain] > width:
            raise InputError(
                f"{domain} joins more than the {width} accelerators of a scale-up domain of "
                f"{shape.name}",
                path=said[node].path, line=said[node].line, value=domain,
                allowed="--like a topology whose scale-up domains are as large; without the file "
                "if its blocks are racks",
            )  # fmt: skip
    own = [n for n in nodes if n not in found and counts.get(n) == width and not found]
    if own:
        notes.append(
            f"a node's {width} accelerators are a whole scale-up domain of {shape.name}: "
            "every node is one"
        )
    return found | {node: node for node in own}


def _inventory(
    nodes: Sequence[str],
    levels: Sequence[Level],
    facts: Mapping[str, Mapping[str, Said]],
    counts: Mapping[str, int],
    name: str,
    source: str,
) -> Inventory | None:
    if not nodes:
        return None
    return Inventory(
        name=name,
        source=source,
        tiers=tuple(level.tier for level in levels) or (SCALE_UP,),
        nodes=tuple(
            InventoryNode(
                name=node,
                accelerators=counts.get(node),
                domains={l_.tier: l_.domains[node] for l_ in levels if node in l_.domains},
                state=_state(facts["state"].get(node)),
                address=str(facts["address"][node].value) if node in facts["address"] else None,
            )
            for node in nodes
        ),
    )


def _state(said: Said | None) -> NodeState:
    states: dict[str, NodeState] = {state: state for state in get_args(NodeState)}
    return "usable" if said is None else states[str(said.value)]


def _unplaced(nodes: Sequence[str], levels: Sequence[Level]) -> list[str]:
    found = []
    for level in levels:
        missing = [node for node in nodes if node not in level.domains]
        if missing and level.domains:
            found.append(f"{level.tier} domain unknown, not eligible: {listed(missing)}")
    return found


def _asks(
    nodes: Sequence[str],
    levels: Sequence[Level],
    counts: Mapping[str, int],
    shape: Topology | None,
) -> list[str]:
    found = []
    if not nodes:
        found.append("which nodes there are: no file names one (a Slurm topology, a map, labels)")
    uncounted = [node for node in nodes if node not in counts]
    if uncounted:
        found.append(
            f"how many accelerators a node has ({listed(uncounted, 4)}): --accelerators N, or "
            "`nvidia-smi topo -m` of a node"
        )
    if shape is None:
        found.append("which accelerator and fabrics these are: --like NAME, a topology")
    elif nodes and levels and not levels[0].domains and not uncounted:
        width = prod(tier.width for tier in shape.tiers if tier.fabric.kind == "scale-up")
        found.append(
            f"which nodes share a {levels[0].tier} domain: {shape.name} has {width} accelerators "
            f"in one, a node has {counts[nodes[0]]} (ClusterUUID, blocks, labels), or another "
            "--like"
        )
    return found


def imported_files(found: Imported, name: str) -> dict[str, str]:
    """File name → text: the inventory as `name`, the topology beside it."""
    path = Path(name)
    made = {} if found.inventory is None else {name: inventory_yaml(found.inventory)}
    if found.topology is not None:
        made[f"{path.stem}-topology{path.suffix or '.yaml'}"] = found.topology
    return made


def inventory_yaml(inventory: Inventory) -> str:
    """The inventory as YAML, a line a node."""
    quote = json.dumps
    lines = [
        f"name: {quote(inventory.name)}",
        f"source: {quote(inventory.source, ensure_ascii=False)}",
        f"tiers: [{', '.join(quote(tier) for tier in inventory.tiers)}]",
        "nodes:",
    ]
    for node in inventory.nodes:
        parts = [f"name: {quote(node.name)}"]
        if node.accelerators is not None:
            parts.append(f"accelerators: {node.accelerators}")
        if node.domains:
            inner = ", ".join(f"{quote(t)}: {quote(d)}" for t, d in node.domains.items())
            parts.append(f"domains: {{{inner}}}")
        if node.state != "usable":
            parts.append(f"state: {node.state}")
        if node.address is not None:
            parts.append(f"address: {quote(node.address)}")
        lines.append(f"  - {{{', '.join(parts)}}}")
    return "\n".join(lines) + "\n"


__all__ = ["Imported", "import_topology", "imported_files", "inventory_yaml"]
