"""The topology of imported nodes: tiers as wide as the widest domain there is, fabrics of a known
topology; and what its data sheet and the nodes' own reports do not agree on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from planner.clusters.cluster_facts import SCALE_UP, Host, listed
from planner.inputs import files
from planner.problem.topology import Tier, Topology

LINKS = {
    "nvlink2": 6, "nvlink3": 12, "nvlink3-a800": 8, "nvlink4": 18, "nvlink4-h800": 8,
    "nvlink4-gh200": 18, "nvlink5": 18, "nvlink5-nvl72": 18, "nvlink5-nvl72-gb300": 18,
}  # fmt: skip
"""Shipped fabric → links of an accelerator (NVIDIA's data sheets)."""

GENERATIONS = {
    6: "NVLink 2 (V100)", 8: "NVLink 3 or 4 with 8 links (A800, H800)",
    12: "NVLink 3 (A100), or bridges (H100 NVL)",
    18: "NVLink 4 (H100, H200, H20, GH200) or 5 (B200, GB200)",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Level:
    """A level of domains: its tier's name, and node → domain where it is known."""

    level: str
    tier: str
    domains: Mapping[str, str]


def topology_notes(shape: Topology | None, host: Host | None) -> list[str]:
    """What a node shows of its links and adapters, and where it does not fit the topology."""
    if host is None:
        return []
    notes = []
    if host.links is not None and any(host.links):
        most = max(host.links)
        kind = GENERATIONS.get(most, "a number of links that no generation has: a part of them?")
        joined = ", ".join(map(str, host.joined or ()))
        notes.append(f"{host.path}: {most} links an accelerator, groups of {joined}: {kind}")
        if len(set(host.links)) > 1:
            notes.append(f"{host.path}: accelerators differ in links: {host.links}")
    near = [a for a in host.adapters if a.distance is not None and a.distance <= 2]
    if near:
        notes.append(f"{host.path}: {len(near)} adapters near {host.accelerators} accelerators")
    if shape is None:
        return notes
    fabrics = [tier.fabric.name for tier in shape.tiers if tier.fabric.kind == "scale-up"]
    wanted = {LINKS[name] for name in fabrics if name in LINKS}
    if host.links and any(host.links) and wanted and max(host.links) not in wanted:
        notes.append(
            f"{host.path} shows {max(host.links)} links an accelerator, {shape.name} has "
            f"{listed([str(w) for w in sorted(wanted)])}: is it like another topology?"
        )
    if host.devices and shape.accelerator.name not in host.devices:
        notes.append(
            f"{host.path} shows {listed(host.devices)}, {shape.name} has "
            f"{shape.accelerator.name}: is it like another topology?"
        )
    return notes + _speeds(shape, host)


def _speeds(shape: Topology, host: Host) -> list[str]:
    said = {a.bits_per_second for a in host.adapters if a.bits_per_second}
    network = next((tier for tier in shape.tiers if tier.fabric.kind == "network"), None)
    if not said or network is None:
        return []
    rates = [a.bits_per_second or 0.0 for a in host.adapters]
    each = sum(rates) / host.accelerators / 8
    paper = float(network.link_bytes_per_second)
    if abs(each / paper - 1) < 0.01:
        return []
    return [
        f"{host.path}: its adapters give {each / 1e9:g} GB/s an accelerator, {shape.name} has "
        f"{paper / 1e9:g}: the topology's figure is kept; correct `bandwidth` if the file is right"
    ]


def topology_text(
    like: str | Path,
    shape: Topology,
    levels: Sequence[Level],
    counts: Mapping[str, int],
    host: Host | None,
    name: str,
    source: str,
    notes: list[str],
) -> str:
    """YAML of the topology: `shape`'s accelerator and fabrics over the levels that are known."""
    path = files.resolve("topology", like)
    raw = files.read(path).plain()
    tiers = list(zip(shape.tiers, raw["tiers"], strict=True))
    scale_up = [pair for pair in tiers if pair[0].fabric.kind == "scale-up"]
    networks = [pair for pair in tiers if pair[0].fabric.kind == "network"]
    placed = [level for level in levels if level.domains]
    lines = [_tier(pair, pair[0].name, pair[0].width, path) for pair in scale_up[:-1]]
    outer = [level for level in placed if level.level != SCALE_UP]
    if scale_up:
        inner = prod(tier.width for tier, _ in scale_up[:-1])
        total = _largest(placed, counts, host) or inner * scale_up[-1][0].width
        lines.append(_tier(scale_up[-1], scale_up[-1][0].name, -(-total // inner), path))
    for position, level in enumerate(outer):
        below = outer[position - 1] if position else _below(placed)
        if position >= len(networks):
            notes.append(f"{shape.name} has no tier for {level.tier}: its outermost fabric is used")
        pair = networks[min(position, len(networks) - 1)]
        lines.append(_tier(pair, level.tier, _widest(level, below), path))
    lines += _outermost(outer, networks, placed, path, shape, notes)
    return (
        "\n".join(
            [
                f"name: {json.dumps(name)}",
                f"description: {json.dumps(f'Imported; accelerator and fabrics of {shape.name}.')}",
                f"source: {json.dumps(source, ensure_ascii=False)}",
                f"accelerator: {_reference(raw['accelerator'], 'accelerator', path)}",
                "tiers:",
                *lines,
            ]
        )
        + "\n"
    )


def _below(placed: Sequence[Level]) -> Level | None:
    return placed[0] if placed and placed[0].level == SCALE_UP else None


def _outermost(
    outer: Sequence[Level],
    networks: Sequence[tuple[Tier, Any]],
    placed: Sequence[Level],
    path: Path,
    shape: Topology,
    notes: list[str],
) -> list[str]:
    """The tier that joins several domains of the outermost known level, if the topology has it."""
    last = outer[-1] if outer else _below(placed)
    domains = len(set(last.domains.values())) if last is not None else 1
    if last is None or domains == 1:
        return []
    if len(outer) < len(networks):
        pair = networks[-1]  # the slowest
        notes.append(
            f"no file says what joins the {domains} {last.tier} domains: tier {pair[0].name} of "
            f"{shape.name}, its outermost, is taken"
        )
        return [_tier(pair, pair[0].name, domains, path)]
    notes.append(
        f"{domains} {last.tier} domains that nothing is known to join: islands, a job lies in one"
    )
    return []


def _largest(placed: Sequence[Level], counts: Mapping[str, int], host: Host | None) -> int:
    """Accelerators of the largest scale-up domain."""
    level = _below(placed)
    if level is None:
        return host.joined[0] if host is not None and host.joined else 0
    totals: dict[str, int] = {}
    for node, domain in level.domains.items():
        totals[domain] = totals.get(domain, 0) + counts.get(node, 0)
    return max(totals.values(), default=0)


def _widest(level: Level, below: Level | None) -> int:
    """Children of the widest domain: domains of the level below, or nodes."""
    children: dict[str, set[str]] = {}
    for node, domain in level.domains.items():
        child = node if below is None else below.domains.get(node)
        if child is not None:
            children.setdefault(domain, set()).add(child)
    return max((len(found) for found in children.values()), default=1)


def _tier(pair: tuple[Tier, Any], name: str, width: int, path: Path) -> str:
    raw = pair[1]
    more = "".join(
        f", {key}: {json.dumps(value, ensure_ascii=False)}"
        for key, value in raw.items()
        if key not in ("name", "width", "fabric")
    )
    fabric = _reference(raw["fabric"], "fabric", path)
    return f"  - {{name: {json.dumps(name)}, width: {width}, fabric: {fabric}{more}}}"


def _reference(raw: object, kind: files.FileKind, path: Path) -> str:
    """A shipped name as it is, a path made absolute, a mapping written out."""
    if isinstance(raw, str) and raw not in files.names(kind):
        raw = str(files.resolve(kind, raw, path.parent).resolve())
    return (
        raw
        if isinstance(raw, str) and raw.isprintable() and "/" not in raw
        else json.dumps(raw, ensure_ascii=False)
    )
