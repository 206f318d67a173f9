"""Which fabrics a measured collective ran on, and how its ranks are split over them.

A configuration is given in words: 'H100-SXM', '2 nodes', 'IB NDR 8x400Gb'. The tables below say
which shipped fabrics each word means. Among several, the rate that the words give decides, or else
the usual rate of the accelerator's clusters.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import ceil, gcd, prod

from planner.errors import InputError
from planner.evidence.collective_logs import Sweep
from planner.inputs.values import load
from planner.problem.topology import Fabric, Tier, Topology

SCALE_UP: Mapping[str, tuple[str, int]] = {
    "gb300": ("nvlink5-nvl72-gb300", 72),
    "gb200": ("nvlink5-nvl72", 72),
    "gh200": ("nvlink4-gh200", 4),
    "b300": ("nvlink5", 8),
    "b200": ("nvlink5", 8),
    "h800": ("nvlink4-h800", 8),
    "h200": ("nvlink4", 8),
    "h100": ("nvlink4", 8),
    "h20": ("nvlink4", 8),
    "a800": ("nvlink3-a800", 8),
    "a100": ("nvlink3", 8),
    "v100": ("nvlink2", 8),
    "mi355x": ("xgmi-mi355x", 8),
    "mi350x": ("xgmi-mi355x", 8),
    "mi325x": ("xgmi-mi300x", 8),
    "mi300x": ("xgmi-mi300x", 8),
    "mi250x": ("xgmi-mi250x", 8),
}
"""In an accelerator's name → its scale-up fabric, accelerators in one domain of it. The first match
counts, so longer names come first: gb300 before b300."""

USUAL_NETWORK_GBIT: Mapping[str, float] = {
    "gb300": 800, "b300": 800, "gh200": 200, "a800": 200, "a100": 200, "v100": 100, "mi250x": 100,
}  # fmt: skip
"""Gbit/s per accelerator where the words name no rate; USUAL_GBIT for others."""

NETWORKS: Sequence[tuple[str, tuple[str, ...]]] = (
    (r"slingshot", ("slingshot-11",)),
    (r"tcpxo", ("gcp-tcpxo",)),
    (r"tcpx", ("gcp-tcpx",)),
    (r"\befa\b", ("aws-efa-50", "aws-efa-200", "aws-efa-400")),
    (r"\broce|rocev2|\bgpudirect-rdma\b", ("roce-200", "roce-400", "roce-800")),
    (
        r"\bib\b|\bib-class|infiniband|\b[ehnx]dr\b",
        ("infiniband-edr", "infiniband-hdr", "infiniband-ndr", "infiniband-xdr"),
    ),
    (r"ethernet|\beth\b", ("ethernet-50", "ethernet-100", "roce-200", "roce-400")),
    # nothing but a rate, as in '400Gb-class per GPU (not stated)'
    (r"\d\s*gb", ("infiniband-edr", "infiniband-hdr", "infiniband-ndr", "infiniband-xdr")),
)
"""Words of a network, as a regular expression → its fabrics; the first match counts."""

NAMED_GBIT = {"edr": 100.0, "hdr": 200.0, "ndr": 400.0, "xdr": 800.0}
USUAL_GBIT = 400.0

LARGEST_NODE = 16
"""Accelerators; wider scale-up domains are racks, whose nodes a job need not fill one by one."""

RACK_NODE = 4
"""Accelerators of each node in a rack."""


class UnmatchedError(Exception):
    """No shipped fabric is known to be the one of a configuration; the message says why."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A sweep on tiers, innermost first.

    split: how many of the ranks each domain of a tier joins, 1 where the sweep does not cross it.
    """

    sweep: Sweep
    tiers: tuple[Tier, ...]
    split: tuple[float, ...]

    @property
    def num_ranks(self) -> int:
        """All ranks of the sweep."""
        return round(prod(self.split))

    @property
    def spanned(self) -> tuple[Tier, ...]:
        """The tiers whose links the group crosses."""
        return tuple(t for t, members in zip(self.tiers, self.split, strict=True) if members > 1)


def place(sweep: Sweep, topology: Topology | None = None) -> Placed:
    """The tiers and split of a sweep: the topology's, or the shipped fabrics that match.

    Raises:
        UnmatchedError: the words match no shipped fabric, or say too little.
    """
    if sweep.num_ranks is None:
        raise UnmatchedError("the log does not say how many ranks ran")
    if topology is not None:
        return _on_topology(topology, sweep, sweep.num_ranks)
    if sweep.accelerator is None or (sweep.num_nodes is None and sweep.network is None):
        raise UnmatchedError("the log does not say what it ran on; give --topology")
    accelerator = _accelerator(sweep.accelerator)
    fabric, width = SCALE_UP[accelerator]
    inner, outer = _inner_outer(sweep.num_ranks, sweep.num_nodes or 1, width)
    tiers = [Tier(name="scale-up", width=max(width, inner), fabric=_fabric(fabric))]
    split = [float(inner)]
    if outer > 1:
        if sweep.network is None:
            raise UnmatchedError("the log does not say what network it ran on; give --topology")
        network = _network(sweep.network, accelerator)
        tiers.append(Tier(name="network", width=outer, fabric=_fabric(network)))
        split.append(float(outer))
    return Placed(sweep, tuple(tiers), tuple(split))


def _accelerator(words: str) -> str:
    """The key of SCALE_UP in an accelerator's name; PCIe cards have no scale-up fabric."""
    folded = words.lower().replace("-", " ").replace("_", " ")
    name = next((name for name in SCALE_UP if name in folded), None)
    if name is None or "pcie" in folded:
        raise UnmatchedError(f"no shipped scale-up fabric is known for '{words}'")
    return name


def _inner_outer(num_ranks: int, num_nodes: int, width: int) -> tuple[int, int]:
    """Ranks in each scale-up domain, and domains.

    width: accelerators of a domain. Jobs on racks use as many accelerators of each.
    """
    per_node = num_ranks // num_nodes
    if per_node * num_nodes != num_ranks:
        raise UnmatchedError(f"{num_ranks} ranks do not fill {num_nodes} nodes evenly")
    if width <= LARGEST_NODE:
        if per_node > width:
            raise UnmatchedError(f"{per_node} ranks a node are more than its {width} accelerators")
        return per_node, num_nodes
    domains = ceil(num_ranks / width)
    while num_ranks % domains:  # the fewest racks that can be filled alike
        domains += 1
    return num_ranks // domains, domains


def _network(words: str, accelerator: str) -> str:
    """The fabric that the words mean whose rate is nearest to theirs."""
    text = words.lower()
    fabrics = next((names for pattern, names in NETWORKS if re.search(pattern, text)), None)
    if fabrics is None:
        raise UnmatchedError(f"no shipped fabric is known for the network '{words}'")
    rate = _rate_gbit(text, accelerator)
    return min(fabrics, key=lambda name: abs(_fabric(name).bytes_per_second * 8e-9 - rate))


def _rate_gbit(text: str, accelerator: str) -> float:
    """Gbit/s per accelerator, of words such as '8x400Gb per node', '400Gb per GPU' or 'NDR'."""
    per_node = re.search(r"(\d+)(?:\.\.\d+)?\s*x\s*(\d+)\s*gb", text)
    if per_node:
        adapters, rate = (int(number) for number in per_node.groups())
        _, width = SCALE_UP[accelerator]
        return adapters * rate / (width if width <= LARGEST_NODE else RACK_NODE)
    per_accelerator = re.search(r"(\d+)\s*gb\S*\s+per\s+(?:gpu|accelerator)", text)
    if per_accelerator:
        return float(per_accelerator.group(1))
    speeds = (rate for name, rate in NAMED_GBIT.items() if re.search(rf"\b{name}\b", text))
    return next(speeds, USUAL_NETWORK_GBIT.get(accelerator, USUAL_GBIT))


def _on_topology(topology: Topology, sweep: Sweep, num_ranks: int) -> Placed:
    """The ranks on a given topology, filled from the innermost domains outwards."""
    if num_ranks > topology.num_accelerators:
        raise InputError(
            f"{num_ranks} ranks are more than the {topology.num_accelerators} accelerators of "
            f"{topology.name}",
            path=sweep.path, line=sweep.line, key="ranks", value=num_ranks,
            allowed=f"at most {topology.num_accelerators}",
        )  # fmt: skip
    width, *outer_widths = topology.widths
    nodes = sweep.num_nodes or ceil(num_ranks / width)
    inner, rest = _inner_outer(num_ranks, nodes, width)
    split = [float(inner)]
    for position, tier_width in enumerate(outer_widths, 1):
        is_last = position == len(outer_widths)
        # a tier takes what fits, else as much as its domains can take alike
        members = rest if is_last or rest <= tier_width else gcd(rest, tier_width)
        split.append(float(members))
        rest //= members
    return Placed(sweep, topology.tiers, tuple(split))


@cache
def _fabric(name: str) -> Fabric:
    return load(name, "fabric", Fabric)
