"""Inventories for tests: nodes under leaves and racks, of given sizes."""

from __future__ import annotations

import random
from collections.abc import Sequence

from planner.inputs.values import load
from planner.problem.cluster import Cluster
from planner.problem.inventory import Inventory
from planner.problem.topology import Tier, Topology

NVL = load("gb200-nvl72", "topology", Topology)


def inventory(tiers: Sequence[str], nodes: Sequence[dict[str, object]]) -> Inventory:
    return Inventory.model_validate(
        {"name": "lab", "source": "test", "tiers": tuple(tiers), "nodes": tuple(nodes)}
    )


def nodes_in_leaves(sizes: Sequence[Sequence[int]]) -> Inventory:
    """A node for every number, of so many accelerators, a domain of its own; a leaf for a list."""
    return inventory(
        ["nvlink", "leaf"],
        [
            {
                "name": f"n{i}.{j}", "accelerators": size,
                "domains": {"nvlink": f"n{i}.{j}", "leaf": f"l{i}"},
            }
            for i, leaf in enumerate(sizes)
            for j, size in enumerate(leaf)
        ],
    )  # fmt: skip


def cluster(sizes: Sequence[Sequence[int]]) -> Cluster:
    """Their usable part under tiers wide enough for all."""
    return Cluster.of(nodes_in_leaves(sizes), wide())


def wide() -> Topology:
    def wider(tier: Tier) -> Tier:
        return tier.replace(width=10_000)

    return NVL.replace(tiers=tuple(wider(tier) for tier in NVL.tiers))


def racks(number: int, trays: int, missing: float = 0.0, seed: int = 0) -> Inventory:
    """Racks of so many trays of 4, 8 racks a leaf, a share of the trays drained."""
    rng = random.Random(seed)
    return inventory(
        ["nvlink", "leaf"],
        [
            {
                "name": f"r{r:03d}t{t:02d}", "accelerators": 4,
                "domains": {"nvlink": f"r{r}", "leaf": f"l{r // 8}"},
                "state": "drained" if rng.random() < missing else "usable",
            }
            for r in range(number)
            for t in range(trays)
        ],
    )  # fmt: skip
