"""What is remarkable about the inside of a node: its adapters, its links, and whether both fit the
topology that the cluster is said to be like. Everything is a note in words; nothing is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from planner.clusters.reading import Adapter, NodeHardware, in_words
from planner.problem.topology import Topology

LINKS: Mapping[str, int] = {
    "nvlink2": 6, "nvlink3": 12, "nvlink3-a800": 8, "nvlink4": 18, "nvlink4-h800": 8,
    "nvlink4-gh200": 18, "nvlink5": 18, "nvlink5-nvl72": 18, "nvlink5-nvl72-gb300": 18,
}  # fmt: skip
"""Shipped fabric → links of an accelerator (NVIDIA's data sheets)."""

GENERATIONS: Mapping[int, str] = {
    6: "NVLink 2 (V100)", 8: "NVLink 3 or 4 with 8 links (A800, H800)",
    12: "NVLink 3 (A100), or bridges (H100 NVL)",
    18: "NVLink 4 (H100, H200, H20, GH200) or 5 (B200, GB200)",
}  # fmt: skip
"""Links of an accelerator → generations of NVLink that have so many."""

_MANY_LINKS = "a number of links that no generation has: a part of them?"


# ---------------------------------------------------------------- adapters


def adapter_notes(hardware: NodeHardware) -> list[str]:
    """Return what is odd about a node's adapters: shared, in another order, far from all GPUs."""
    place = hardware.place
    if not hardware.adapters:
        return [f"{place}: no network adapters are shown; how many there are stays unknown"]
    near = [adapter for adapter in hardware.adapters if adapter.is_near and adapter.nearest]
    if not near:
        return [f"{place}: no adapter is close to an accelerator; their use is unknown"]
    notes = []
    far = [adapter.name for adapter in hardware.adapters if adapter not in near]
    if far:
        notes.append(
            f"{place}: {in_words(far)} {_be(far)} behind no accelerator's PCIe switch: "
            "storage or front end, not counted"
        )
    notes += [f"{place}: {text}" for text in (*_sharing(near), *_odd_order(near))]
    if len(near) % hardware.accelerators and hardware.accelerators % len(near):
        notes.append(
            f"{place}: {len(near)} adapters near {hardware.accelerators} accelerators do not "
            "divide: which of them carry training traffic is not known"
        )
    return notes


def _sharing(near: Sequence[Adapter]) -> list[str]:
    by_accelerators: dict[tuple[int, ...], list[str]] = {}
    for adapter in near:
        by_accelerators.setdefault(adapter.nearest, []).append(adapter.name)
    shared = {group: names for group, names in by_accelerators.items() if len(group) > 1}
    if not shared:
        return []
    group, names = next(iter(shared.items()))
    notes = [
        f"adapters are shared: {in_words(names)} {_be(names)} nearest to accelerators "
        f"{', '.join(map(str, group))} alike"
    ]
    usual = min(len(names) for names in shared.values())
    for group, names in shared.items():
        if len(names) > usual:
            notes.append(
                f"accelerators {', '.join(map(str, group))} have {len(names)} adapters "
                f"near ({in_words(names)}), others {usual}: one of them may serve storage"
            )
    return notes


def _odd_order(near: Sequence[Adapter]) -> list[str]:
    """Whether adapters, one per accelerator, are numbered in another order than those."""
    order = [adapter.nearest[0] for adapter in near]
    one_to_one = all(len(adapter.nearest) == 1 for adapter in near)
    if not one_to_one or len(set(order)) < len(order) or order == sorted(order):
        return []
    pairs = ", ".join(f"accelerator {adapter.nearest[0]} {adapter.name}" for adapter in near[:3])
    how = "reversed" if _is_reversed(order) else "not in the order of the accelerators"
    return [f"adapters are {how} ({pairs}, ...): bind them by nearness, not by number"]


def _is_reversed(order: Sequence[int]) -> bool:
    """Whether numbers fall, all of them or within each half (each socket)."""
    half = len(order) // 2
    return all(
        list(numbers) == sorted(numbers, reverse=True) for numbers in (order[:half], order[half:])
    ) or list(order) == sorted(order, reverse=True)


def _be(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"


# ---------------------------------------------------------------- against a topology


def topology_notes(topology: Topology | None, hardware: NodeHardware | None) -> list[str]:
    """Return what a node shows of its links and adapters, and what does not fit the topology."""
    if hardware is None:
        return []
    path = hardware.place.path
    notes = _link_notes(hardware)
    near = [adapter for adapter in hardware.adapters if adapter.is_near]
    if near:
        notes.append(f"{path}: {len(near)} adapters near {hardware.accelerators} accelerators")
    if topology is None:
        return notes
    notes += _other_links(topology, hardware)
    if hardware.accelerator_types and topology.accelerator.name not in hardware.accelerator_types:
        notes.append(
            f"{path} shows {in_words(hardware.accelerator_types)}, {topology.name} has "
            f"{topology.accelerator.name}: is it like another topology?"
        )
    return notes + _other_rates(topology, hardware)


def _link_notes(hardware: NodeHardware) -> list[str]:
    if hardware.links is None or not any(hardware.links):
        return []
    path, most = hardware.place.path, max(hardware.links)
    groups = ", ".join(map(str, hardware.linked or ()))
    generation = GENERATIONS.get(most, _MANY_LINKS)
    notes = [f"{path}: {most} links an accelerator, groups of {groups}: {generation}"]
    if len(set(hardware.links)) > 1:
        notes.append(f"{path}: accelerators differ in links: {hardware.links}")
    return notes


def _other_links(topology: Topology, hardware: NodeHardware) -> list[str]:
    fabrics = [tier.fabric.name for tier in topology.tiers if tier.fabric.kind == "scale-up"]
    expected = {LINKS[name] for name in fabrics if name in LINKS}
    if not hardware.links or not any(hardware.links) or not expected:
        return []
    most = max(hardware.links)
    if most in expected:
        return []
    return [
        f"{hardware.place.path} shows {most} links an accelerator, {topology.name} has "
        f"{in_words([str(links) for links in sorted(expected)])}: is it like another topology?"
    ]


def _other_rates(topology: Topology, hardware: NodeHardware) -> list[str]:
    """Whether the adapters' rates are others than those of the topology's first network tier."""
    network = next((tier for tier in topology.tiers if tier.fabric.kind == "network"), None)
    bits_per_second = sum(adapter.bits_per_second or 0.0 for adapter in hardware.adapters)
    if not bits_per_second or network is None:
        return []
    shown = bits_per_second / hardware.accelerators / 8
    expected = float(network.link_bytes_per_second)
    if abs(shown / expected - 1) < 0.01:
        return []
    return [
        f"{hardware.place.path}: its adapters give {shown / 1e9:g} GB/s an accelerator, "
        f"{topology.name} has {expected / 1e9:g}: the topology's figure is kept; correct "
        "`bandwidth` if the file is right"
    ]
