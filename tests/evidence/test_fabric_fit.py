"""Fits: known parameters found again, what logs do not say kept, slow hosts named."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from planner.cost.context import TierArrays
from planner.errors import InputError
from planner.evidence.collective_logs import PUBLISHED_COLLECTIVES, Sweep, read_sweeps
from planner.evidence.fabric_fit import fit_fabric, in_order
from planner.evidence.fabrics import place
from planner.evidence.fitted_files import fabric_yaml
from planner.evidence.validate_collectives import predicted, ramps
from planner.inputs.files import names
from planner.inputs.quantities import Figure
from planner.inputs.values import load, parse
from planner.problem.topology import Fabric, Topology

SIZES = 2.0 ** np.arange(3, 34)


def figure(value: float) -> Figure:
    return Figure(value, "test", "assumed")


@pytest.fixture(scope="module")
def dgx() -> Topology:
    return load("dgx-h100", "topology", Topology)


def with_fabric(topology: Topology, position: int, **changes: float) -> Topology:
    """The topology with numbers of one tier's fabric changed."""
    figures: dict[str, Any] = {name: figure(value) for name, value in changes.items()}
    tiers = [
        tier.replace(fabric=tier.fabric.replace(**figures)) if t == position else tier
        for t, tier in enumerate(topology.tiers)
    ]
    return topology.replace(tiers=tuple(tiers))


def measured(
    topology: Topology,
    ranks: int,
    operation: str = "all_reduce",
    *,
    nodes: int | None = None,
    name: str = "log",
    noise: float = 0.0,
) -> Sweep:
    """What nccl-tests would print if the model were exact, with some noise."""
    sweep = Sweep(
        name, operation, None, nodes, ranks, None, "", SIZES, np.ones(len(SIZES)), "log.txt", 1
    )
    placed = place(sweep, topology)
    tiers = TierArrays.of_tiers(placed.tiers)
    times = predicted(placed, tiers, ramps(placed.tiers), SIZES)
    shake = np.exp(np.random.default_rng(0).normal(0.0, noise, len(SIZES)))
    return replace(sweep, seconds=times * shake)


# ---------------------------------------------------------------- parameters


@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_a_scale_up_fabric_is_found_again(dgx: Topology, noise: float) -> None:
    truth = {"hop_seconds": 1.1e-6, "ramp": 0.45, "all_reduce_efficiency": 0.93}
    log = measured(with_fabric(dgx, 0, **truth), 8, noise=noise)
    found = fit_fabric([log], dgx)
    assert set(found.fitted) == set(truth)
    assert found.kept == {}
    for name, value in truth.items():
        fitted = getattr(found.fabric, name)
        assert fitted == pytest.approx(value, rel=0.01 if noise == 0 else 0.12)
        assert (fitted.status, fitted.source) == ("fitted", "fit to log")
    assert found.errors.median_fraction is not None
    assert found.errors.median_fraction <= (0.005 if noise == 0 else 0.05)
    assert found.fabric.efficiency == dgx.tiers[0].fabric.efficiency


def test_a_network_is_found_again(dgx: Topology) -> None:
    """Where switches do not reduce, rings share the all-reduce's rate."""
    truth = {"hop_seconds": 12e-6, "ramp": 1.1, "all_reduce_efficiency": 0.7, "efficiency": 0.7}
    found = fit_fabric([measured(with_fabric(dgx, 1, **truth), 32)], dgx)
    assert found.tier == dgx.tiers[1].name
    for name, value in truth.items():
        assert getattr(found.fabric, name) == pytest.approx(value, rel=0.02)
    assert found.fabric.efficiency.source == "as all-reduce: fit to log"


def test_a_rendezvous_is_found_again_where_the_fabric_has_one(dgx: Topology) -> None:
    guess = with_fabric(dgx, 1, rendezvous_seconds=5e-6, eager_bytes=4096.0)
    truth = {"hop_seconds": 6e-6, "ramp": 0.5, "rendezvous_seconds": 9e-6}
    found = fit_fabric([measured(with_fabric(guess, 1, **truth), 16)], guess)
    assert "rendezvous_seconds" in found.fitted
    for name, value in truth.items():
        assert getattr(found.fabric, name) == pytest.approx(value, rel=0.03)
    assert found.fabric.eager_bytes == 4096.0
    large = measured(guess, 16)
    few = replace(large, num_bytes=SIZES[-3:], seconds=large.seconds[-3:])
    assert "rendezvous_seconds" in fit_fabric([few], guess).kept


def test_sizes_that_take_longer_than_larger_ones_say_nothing(dgx: Topology) -> None:
    """Four sizes take eight times as long, as under a bad protocol: the fit is the same."""
    log = measured(with_fabric(dgx, 1, hop_seconds=9e-6), 32)
    slow = (SIZES >= 2**17) & (SIZES <= 2**20)
    dip = replace(log, seconds=np.where(slow, 8.0, 1.0) * log.seconds)
    assert in_order(dip).tolist() == (~slow).tolist()
    assert in_order(log).all()
    without, with_dip = fit_fabric([log], dgx).fabric, fit_fabric([dip], dgx).fabric
    for name in ("hop_seconds", "ramp", "all_reduce_efficiency"):
        assert getattr(with_dip, name) == pytest.approx(getattr(without, name), rel=0.02)


def test_every_operation_fits_its_own_share(dgx: Topology) -> None:
    truth = {
        "base_seconds": 9e-6, "hop_seconds": 0.8e-6, "posting_seconds": 0.9e-6, "efficiency": 0.7,
        "all_reduce_efficiency": 1.1, "all_to_all_efficiency": 0.6, "p2p_efficiency": 0.65,
    }  # fmt: skip
    shaped = with_fabric(dgx, 0, **truth)
    operations = ("all_reduce", "all_gather", "alltoall", "sendrecv")
    logs = [measured(shaped, 8, operation, name=operation) for operation in operations]
    found = fit_fabric(logs, dgx)
    for name, value in truth.items():
        assert getattr(found.fabric, name) == pytest.approx(value, rel=0.03)


def test_what_the_logs_do_not_say_is_kept(dgx: Topology) -> None:
    """Two nodes are bound by what is inside them; large messages say nothing of start-up."""
    two = fit_fabric([measured(with_fabric(dgx, 1, hop_seconds=9e-6), 16)], dgx)
    assert two.kept == {"all_reduce_efficiency": "the logs do not depend on it"}
    assert two.fabric.all_reduce_efficiency == dgx.tiers[1].fabric.all_reduce_efficiency
    assert two.fabric.hop_seconds == pytest.approx(9e-6, rel=0.05)
    log = measured(with_fabric(dgx, 0, all_reduce_efficiency=0.8), 8)
    large = replace(log, num_bytes=SIZES[-3:], seconds=log.seconds[-3:])
    kept = fit_fabric([large], dgx)
    assert "hop_seconds" in kept.kept
    assert kept.fabric.all_reduce_efficiency == pytest.approx(0.8, rel=0.03)


@pytest.mark.parametrize(
    ("name", "tier", "figures"),
    [
        ("h100_1x8_allreduce_nvls", 0, ("hop_seconds", "ramp", "all_reduce_efficiency")),
        ("h100_2x8_ib_allreduce", 1, ("hop_seconds", "ramp")),
    ],
)
def test_a_shipped_fabric_is_what_calibrate_finds(
    dgx: Topology, name: str, tier: int, figures: tuple[str, ...]
) -> None:
    (log,) = (s for s in read_sweeps([PUBLISHED_COLLECTIVES]) if s.name == name)
    ran_on = dgx.replace(tiers=place(log).tiers)
    found, shipped = fit_fabric([log], ran_on).fabric, ran_on.tiers[tier].fabric
    for attribute in figures:
        assert getattr(found, attribute) == pytest.approx(getattr(shipped, attribute), rel=0.02)


# ---------------------------------------------------------------- files


def test_the_file_loads_and_serves(dgx: Topology) -> None:
    found = fit_fabric([measured(with_fabric(dgx, 0, ramp=0.6), 8)], dgx, "my-links")
    loaded = parse(found.to_yaml(), "my-links.yaml", Fabric)
    assert loaded == found.fabric
    assert loaded.name == "my-links"
    assert loaded.ramp.status == "fitted"
    assert loaded.bytes_per_second.source == dgx.tiers[0].fabric.bytes_per_second.source


@pytest.mark.parametrize("name", names("fabric"))
def test_every_fabric_survives_being_written(name: str) -> None:
    fabric = load(name, "fabric", Fabric)
    assert parse(fabric_yaml(fabric), "copy.yaml", Fabric) == fabric


# ---------------------------------------------------------------- hosts


def test_a_slow_host_is_named_and_left_out(dgx: Topology) -> None:
    """One of three hosts takes 3 times as long: it is named, and the fit is that of the others."""
    log = measured(with_fabric(dgx, 0, all_reduce_efficiency=0.95), 8)
    slow = replace(log, name="slow", seconds=log.seconds * np.where(SIZES > 2**20, 3.0, 1.0))
    found = fit_fabric([log, slow, replace(log, name="third")], dgx)
    assert set(found.suspicious) == {"slow"}
    assert "3.0 times as long as the other logs of its configuration" in found.suspicious["slow"]
    assert found.fabric.all_reduce_efficiency == pytest.approx(0.95, rel=0.02)
    assert found.fabric.ramp.source == "fit to log, third"


def test_a_single_host_is_compared_with_the_fabric(dgx: Topology) -> None:
    log = measured(dgx, 8)
    found = fit_fabric([replace(log, seconds=2.5 * log.seconds)], dgx)
    assert "2.5 times as long as what the topology's fabric reaches" in found.suspicious["log"]
    assert fit_fabric([log], dgx).suspicious == {}


# ---------------------------------------------------------------- errors


def test_logs_of_one_tier_at_a_time(dgx: Topology) -> None:
    logs = [measured(dgx, 8, name="a"), measured(dgx, 16, name="b")]
    with pytest.raises(InputError, match="the logs reach different tiers, nvlink and leaf"):
        fit_fabric(logs, dgx)


def test_nothing_to_fit(dgx: Topology) -> None:
    with pytest.raises(InputError, match="no log holds a point of two ranks or more"):
        fit_fabric([measured(dgx, 1)], dgx)
    with pytest.raises(InputError, match="does not say how many ranks"):
        fit_fabric([replace(measured(dgx, 8), num_ranks=None)], dgx)
