"""Topologies: rates after override and oversubscription, and the variants of with_*."""

from pathlib import Path

import pytest

from planner.errors import InputError
from planner.files import load, names
from planner.problem.quantities import Figure
from planner.problem.topology import Fabric, Topology


@pytest.fixture
def toy(folder: Path) -> Topology:
    return load(folder / "topology.yaml", "topology", Topology)


def test_sizes(toy: Topology) -> None:
    assert toy.tier_names == ("nvlink", "leaf")
    assert toy.widths == (8, 4)
    assert toy.num_accelerators == 32


def test_rate_of_a_tier(toy: Topology) -> None:
    nvlink, leaf = toy.tiers
    assert nvlink.bytes_per_second == 450e9
    assert leaf.bytes_per_second == 25e9  # 400 Gbit/s shared 2:1
    faster = leaf.replace(bandwidth=Figure(100e9, "test", "assumed"))
    assert faster.bytes_per_second == 50e9
    assert faster.replace(oversubscription=None).bytes_per_second == 100e9


@pytest.mark.parametrize("rate", [12.5e9, Figure(12.5e9, "measured here", "measured")])
def test_with_network_changes_network_tiers_only(toy: Topology, rate: float) -> None:
    changed = toy.with_network(rate)
    assert [tier.bytes_per_second for tier in changed.tiers] == [450e9, 6.25e9]
    assert changed.tiers[0] == toy.tiers[0]
    bandwidth = changed.tiers[1].bandwidth
    assert bandwidth is not None
    assert bandwidth.status == ("measured" if isinstance(rate, Figure) else "assumed")


def test_with_network_checks(toy: Topology) -> None:
    with pytest.raises(InputError, match="bandwidth"):
        toy.with_network(-1.0)


def test_with_scale_up_width(toy: Topology) -> None:
    assert toy.with_scale_up_width(4).widths == (4, 4)
    with pytest.raises(InputError, match="width"):
        toy.with_scale_up_width(0)


@pytest.mark.parametrize("name", names("fabric"))
def test_shipped_fabric_loads(name: str) -> None:
    assert load(name, "fabric", Fabric).name == name


@pytest.mark.parametrize("name", names("topology"))
def test_shipped_topology_loads(name: str) -> None:
    topology = load(name, "topology", Topology)
    assert topology.name == name
    assert topology.num_accelerators >= topology.widths[0]
