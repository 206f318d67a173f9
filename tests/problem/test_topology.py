"""Topologies: rates after override and oversubscription, and the variants of with_*."""

from pathlib import Path

import pytest

from planner.errors import InputError
from planner.evidence.fitted_files import fabric_yaml
from planner.inputs.files import names
from planner.inputs.quantities import Figure
from planner.inputs.values import load, parse
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


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ("rendezvous_latency: {value: 9 us, source: x, status: assumed}", "eager_limit"),
        ("eager_limit: {value: 4 KiB, source: x, status: assumed}", "rendezvous_latency"),
        ("sharp_efficiency: {value: 0.9, source: x, status: assumed}", "sharp_latency"),
        ("sharp_latency: {value: 30 us, source: x, status: assumed}", "sharp_efficiency"),
    ],
)
def test_figures_that_go_together(given: str, missing: str) -> None:
    text = fabric_yaml(load("infiniband-ndr", "fabric", Fabric))
    key = given.split(":")[0]
    with pytest.raises(InputError, match=f"'{key}' is given without '{missing}'"):
        parse(text + given + "\n", "mine.yaml", Fabric)


def test_shipped_switches_that_reduce_differ_in_that_alone() -> None:
    plain, sharp = (load(f"infiniband-ndr{s}", "fabric", Fabric) for s in ("", "-sharp"))
    assert plain.sharp_efficiency is None and plain.sharp_seconds is None
    assert (sharp.sharp_efficiency, sharp.sharp_seconds) == (0.9, 30e-6)
    same = sharp.replace(name=plain.name, sharp_efficiency=None, sharp_seconds=None)
    for name in Fabric.model_fields:
        assert getattr(same, name) == getattr(plain, name), name


@pytest.mark.parametrize("name", names("fabric"))
def test_shipped_fabric_loads(name: str) -> None:
    assert load(name, "fabric", Fabric).name == name


@pytest.mark.parametrize("name", names("topology"))
def test_shipped_topology_loads(name: str) -> None:
    topology = load(name, "topology", Topology)
    assert topology.name == name
    assert topology.num_accelerators >= topology.widths[0]


def test_key_of_a_tiers_rate_names_the_figure_that_holds(toy: Topology) -> None:
    leaf = toy.tiers[1].replace(bandwidth=Figure(100e9, "test", "assumed"))
    given = toy.replace(tiers=(toy.tiers[0], leaf))
    assert float(leaf.link_bytes_per_second) == 100e9  # before it is shared 2:1
    assert [given.link_rate_key(position) for position in (0, 1)] == [
        "tiers.0.fabric.bandwidth.value", "tiers.1.bandwidth.value",
    ]  # fmt: skip
