"""The YAML files that an import makes: the inventory of the nodes, and their topology.

The topology has tiers as wide as the widest domain there is, with the accelerator and the fabrics
of the topology that the cluster is said to be like.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from planner.clusters.merge import Level, MergedCluster
from planner.clusters.reading import SCALE_UP
from planner.inputs.files import FileKind, names, read, resolve
from planner.problem.inventory import Inventory
from planner.problem.topology import Tier, Topology

# ---------------------------------------------------------------- the inventory


def inventory_yaml(inventory: Inventory) -> str:
    """Return the YAML text of an inventory, with a line per node."""
    quote = json.dumps
    lines = [
        f"name: {quote(inventory.name)}",
        f"source: {quote(inventory.source, ensure_ascii=False)}",
        f"tiers: [{', '.join(quote(tier) for tier in inventory.tiers)}]",
        "nodes:",
    ]
    for node in inventory.nodes:
        entries = [f"name: {quote(node.name)}"]
        if node.accelerators is not None:
            entries.append(f"accelerators: {node.accelerators}")
        if node.domains:
            domains = ", ".join(f"{quote(t)}: {quote(d)}" for t, d in node.domains.items())
            entries.append(f"domains: {{{domains}}}")
        if node.state != "usable":
            entries.append(f"state: {node.state}")
        if node.address is not None:
            entries.append(f"address: {quote(node.address)}")
        lines.append(f"  - {{{', '.join(entries)}}}")
    return "\n".join(lines) + "\n"


# ---------------------------------------------------------------- the topology


@dataclass(frozen=True, slots=True)
class _Source:
    """A tier of the topology that the cluster is like, and its keys as the file writes them."""

    tier: Tier
    raw: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Like:
    """The topology that the cluster is like, and its file."""

    topology: Topology
    path: Path
    scale_up: tuple[_Source, ...]
    networks: tuple[_Source, ...]

    @classmethod
    def of(cls, topology: Topology, path: Path) -> _Like:
        raw_tiers = read(path).plain()["tiers"]
        sources = [_Source(*pair) for pair in zip(topology.tiers, raw_tiers, strict=True)]
        return cls(
            topology,
            path,
            scale_up=tuple(s for s in sources if s.tier.fabric.kind == "scale-up"),
            networks=tuple(s for s in sources if s.tier.fabric.kind == "network"),
        )

    def tier_yaml(self, source: _Source, name: str, width: int) -> str:
        more = "".join(
            f", {key}: {json.dumps(value, ensure_ascii=False)}"
            for key, value in source.raw.items()
            if key not in ("name", "width", "fabric")
        )
        fabric = self.reference_yaml("fabric", source.raw["fabric"])
        return f"  - {{name: {json.dumps(name)}, width: {width}, fabric: {fabric}{more}}}"

    def reference_yaml(self, kind: FileKind, raw: object) -> str:
        """Return a shipped name as it is, a path made absolute, a mapping written out."""
        if isinstance(raw, str) and raw not in names(kind):
            raw = str(resolve(kind, raw, self.path.parent).resolve())
        if isinstance(raw, str) and raw.isprintable() and "/" not in raw:
            return raw
        return json.dumps(raw, ensure_ascii=False)


def topology_yaml(topology: Topology, path: Path, cluster: MergedCluster, notes: list[str]) -> str:
    """Return the YAML text of a cluster's topology.

    Args:
        topology: the one that the cluster is like, whose accelerator and fabrics it has.
        path: that topology's file.
        notes: what had to be assumed is added to these.
    """
    like = _Like.of(topology, path)
    placed = [level for level in cluster.levels if level.domains]
    scale_up = next((level for level in placed if level.name == SCALE_UP), None)
    outer = [level for level in placed if level.name != SCALE_UP]
    accelerator = like.reference_yaml("accelerator", read(path).plain()["accelerator"])
    description = f"Imported; accelerator and fabrics of {topology.name}."
    lines = [
        f"name: {json.dumps(cluster.name)}",
        f"description: {json.dumps(description)}",
        f"source: {json.dumps(cluster.source, ensure_ascii=False)}",
        f"accelerator: {accelerator}",
        "tiers:",
        *_scale_up_tiers(like, scale_up, cluster),
        *_network_tiers(like, scale_up, outer, notes),
        *_outermost_tier(like, scale_up, outer, notes),
    ]
    return "\n".join(lines) + "\n"


def _scale_up_tiers(like: _Like, level: Level | None, cluster: MergedCluster) -> list[str]:
    if not like.scale_up:
        return []
    *inside, last = like.scale_up
    lines = [like.tier_yaml(source, source.tier.name, source.tier.width) for source in inside]
    inner = prod(source.tier.width for source in inside)
    total = _largest_domain(level, cluster) or inner * last.tier.width
    return [*lines, like.tier_yaml(last, last.tier.name, -(-total // inner))]


def _largest_domain(level: Level | None, cluster: MergedCluster) -> int:
    """Return the accelerators of the largest scale-up domain; 0 where none are known."""
    if level is None:
        linked = cluster.hardware.linked if cluster.hardware is not None else None
        return linked[0] if linked else 0
    totals: dict[str, int] = {}
    for node, domain in level.domains.items():
        totals[domain] = totals.get(domain, 0) + cluster.accelerators.get(node, 0)
    return max(totals.values(), default=0)


def _network_tiers(
    like: _Like, scale_up: Level | None, outer: Sequence[Level], notes: list[str]
) -> list[str]:
    """Return the tiers of the levels above scale-up, each with a network of `like`."""
    lines = []
    for position, level in enumerate(outer):
        if position >= len(like.networks):
            notes.append(
                f"{like.topology.name} has no tier for {level.tier}: its outermost fabric is used"
            )
        source = like.networks[min(position, len(like.networks) - 1)]
        below = outer[position - 1] if position else scale_up
        lines.append(like.tier_yaml(source, level.tier, _widest(level, below)))
    return lines


def _widest(level: Level, below: Level | None) -> int:
    """Return the children of the widest domain: domains of the level below, or nodes."""
    children: dict[str, set[str]] = {}
    for node, domain in level.domains.items():
        child = node if below is None else below.domains.get(node)
        if child is not None:
            children.setdefault(domain, set()).add(child)
    return max(map(len, children.values()), default=1)


def _outermost_tier(
    like: _Like, scale_up: Level | None, outer: Sequence[Level], notes: list[str]
) -> list[str]:
    """Return the tier that joins the domains of the outermost known level, if `like` has one."""
    last = outer[-1] if outer else scale_up
    num_domains = len(set(last.domains.values())) if last is not None else 1
    if last is None or num_domains == 1:
        return []
    if len(outer) < len(like.networks):
        slowest = like.networks[-1]
        notes.append(
            f"no file says what joins the {num_domains} {last.tier} domains: tier "
            f"{slowest.tier.name} of {like.topology.name}, its outermost, is taken"
        )
        return [like.tier_yaml(slowest, slowest.tier.name, num_domains)]
    notes.append(
        f"{num_domains} {last.tier} domains that nothing is known to join: islands, a job lies in "
        "one"
    )
    return []
