"""Seven things that public nccl-tests logs show, each predicted by the shipped fabrics.

Figures are bus bandwidths of 8 GiB in GB/s and times of 64 bytes in µs. Few of them are what a
fabric was fitted on, so tolerances are those of a prediction.
"""

from __future__ import annotations

import numpy as np
import pytest

from planner.cost.context import TierArrays
from planner.evidence.collective_logs import PUBLISHED_COLLECTIVES, Sweep, bus_factor, read_sweeps
from planner.evidence.fabric_fit import fit_fabric
from planner.evidence.fabrics import place
from planner.evidence.validate_collectives import (
    SUSPICIOUS_RATIO,
    compare_sweeps,
    predicted,
    ramps,
)
from planner.inputs.values import load
from planner.problem.topology import Topology

NDR = "IB NDR 8x400Gb"
RACKS = "NVLink5 NVL72 + RoCE 4x400Gb per node"
SLINGSHOT = "Slingshot-11 4x200Gb per node"


def seconds(
    gpu: str, nodes: int, ranks: int, operation: str, num_bytes: float, network: str = "none"
) -> float:
    sweep = Sweep(
        "x", operation, gpu, nodes, ranks, network, "", np.array([num_bytes]), np.ones(1), "", 1
    )
    placed = place(sweep)
    tiers = TierArrays.of_tiers(placed.tiers)
    return float(predicted(placed, tiers, ramps(placed.tiers), sweep.num_bytes)[0])


def busbw(gpu: str, nodes: int, ranks: int, operation: str, network: str = "none") -> float:
    size = 8 * 2.0**30
    time = seconds(gpu, nodes, ranks, operation, size, network)
    return size / time * bus_factor(operation, ranks) / 1e9


def alpha(gpu: str, nodes: int, ranks: int, operation: str, network: str = "none") -> float:
    return 1e6 * seconds(gpu, nodes, ranks, operation, 64.0, network)


@pytest.mark.parametrize(
    ("gpu", "all_reduce", "all_gather", "alltoall", "start"),
    [("A100", 235, 230, 226, 35), ("H100", 480, 366, 348, 15.8), ("B200", 843, 672, 673, None)],
)
def test_a_node_of_eight(
    gpu: str, all_reduce: float, all_gather: float, alltoall: float, start: float | None
) -> None:
    """One node of A100, H100, B200; nothing of B200's node was fitted on a node."""
    assert busbw(gpu, 1, 8, "all_reduce") == pytest.approx(all_reduce, rel=0.05)
    assert busbw(gpu, 1, 8, "all_gather") == pytest.approx(all_gather, rel=0.08)
    assert busbw(gpu, 1, 8, "reduce_scatter") == busbw(gpu, 1, 8, "all_gather")
    assert busbw(gpu, 1, 8, "alltoall") == pytest.approx(alltoall, rel=0.10)
    if start is not None:
        assert alpha(gpu, 1, 8, "all_reduce") == pytest.approx(start, rel=0.10)
    else:
        assert alpha(gpu, 1, 8, "all_gather") == pytest.approx(16, rel=0.10)


# ---------------------------------------------------------------- 1


@pytest.mark.parametrize(("nodes", "measured"), [(2, 469), (4, 366), (128, 367)])
def test_two_nodes_are_special_for_all_reduce(nodes: int, measured: float) -> None:
    """Two run at the rate inside a node; from three on the adapters' sum, 400 GB/s, binds."""
    found = busbw("H100", nodes, 8 * nodes, "all_reduce", NDR)
    assert found == pytest.approx(measured, rel=0.05)
    assert (found > 400) == (nodes == 2)
    assert busbw("H100", nodes, 8 * nodes, "all_gather", NDR) < 400


def test_a_second_cluster_of_the_same_parts() -> None:
    """467, 326 and 321 GB/s over 2, 4 and 8 nodes: within what clusters differ by."""
    for nodes, measured in ((2, 467), (4, 326), (8, 321)):
        found = busbw("H100", nodes, 8 * nodes, "all_reduce", NDR)
        assert found == pytest.approx(measured, rel=0.13)


@pytest.mark.parametrize(("nodes", "start"), [(2, 26), (4, 36)])
def test_start_up_over_nodes(nodes: int, start: float) -> None:
    found = alpha("H100", nodes, 8 * nodes, "all_reduce", NDR)
    assert found == pytest.approx(start, rel=0.10)


@pytest.mark.parametrize(("nodes", "start"), [(1, 9), (512, 149)])
def test_start_up_grows_with_the_tree(nodes: int, start: float) -> None:
    """GH200 on Slingshot, 4 to 2048 superchips."""
    found = alpha("GH200", nodes, 4 * nodes, "all_reduce", SLINGSHOT)
    assert found == pytest.approx(start, rel=0.15)


# ---------------------------------------------------------------- 2


def test_switches_lift_all_reduce_alone_and_from_six_ranks() -> None:
    lifted = {n: busbw("H100", 1, n, "all_reduce") for n in (2, 4, 5, 6, 8)}
    rings = [lifted[n] for n in (2, 4, 5)]
    assert max(rings) < 380 < 460 < min(lifted[6], lifted[8])
    assert max(busbw("H100", 1, n, "all_gather") for n in (2, 4, 6, 8)) < 380
    a100 = [busbw("A100", 1, n, "all_reduce") for n in (4, 8)]
    assert a100[0] == pytest.approx(a100[1], rel=0.04)


# ---------------------------------------------------------------- 3


@pytest.mark.parametrize(
    ("gpu", "nodes", "ranks", "domain", "network"),
    [("H100", 4, 32, 8, NDR), ("B200", 2, 16, 8, NDR), ("GB200", 32, 128, 64, RACKS)],
)
def test_all_to_all_is_bound_by_the_adapter(
    gpu: str, nodes: int, ranks: int, domain: int, network: str
) -> None:
    """algbw·(n − domain)/n is what leaves over one adapter: 42 to 46 of 50 GB/s if healthy."""
    size = 8 * 2.0**30
    algbw = size / seconds(gpu, nodes, ranks, "alltoall", size, network)
    assert 42e9 <= algbw * (ranks - domain) / ranks <= 46e9


def test_all_to_all_falls_beyond_a_rack() -> None:
    """7 to 14-fold from one rack to two."""
    inside = busbw("GB200", 16, 64, "alltoall", RACKS)
    across = busbw("GB200", 32, 128, "alltoall", RACKS)
    assert 7 <= inside / across <= 14
    assert across == pytest.approx(90, rel=0.10)


# ---------------------------------------------------------------- 4


@pytest.mark.parametrize(("ranks", "measured"), [(2, 48), (8, 316)])
def test_a_mesh_gives_a_pair_one_link(ranks: int, measured: float) -> None:
    assert busbw("MI300X", 1, ranks, "all_reduce") == pytest.approx(measured, rel=0.08)


# ---------------------------------------------------------------- 5


def test_sends() -> None:
    """9.5 µs in a node, 14.5 across; 15 to 36 GB/s over an adapter of 400 Gbit/s."""
    assert alpha("B200", 1, 8, "sendrecv") == pytest.approx(9.5, rel=0.10)
    assert alpha("B200", 2, 16, "sendrecv", NDR) == pytest.approx(14.5, rel=0.10)
    assert 15 <= busbw("B200", 2, 16, "sendrecv", NDR) <= 36


# ---------------------------------------------------------------- 6


def full_sweeps() -> list[Sweep]:
    """All-reduce from start-up to full rate on the topologies that ship."""
    return [
        sweep
        for sweep in read_sweeps([PUBLISHED_COLLECTIVES])
        if len(sweep.num_bytes) >= 25
        and sweep.num_bytes[0] <= 1024
        and sweep.num_bytes[-1] >= 2**30
        and sweep.operation == "all_reduce"
        and "Slingshot" not in str(sweep.network)
    ]


def test_the_form_between_start_up_and_full_rate() -> None:
    """Fitted to each sweep it is off by 7 % at most (median of means), α + S/β by 15 %."""
    means, lines = [], []
    for sweep in full_sweeps():
        ran_on = load("dgx-h100", "topology", Topology).replace(tiers=place(sweep).tiers)
        found = fit_fabric([sweep], ran_on)
        means.append(float(np.mean(np.abs(found.logs[0].errors))))
        lines.append(float(np.mean(np.abs(found.logs[0].line_errors))))
    assert len(means) >= 6
    assert np.median(means) <= 0.07
    assert np.median(lines) >= 0.14


# ---------------------------------------------------------------- 7


def test_misconfigured_hosts_are_suspected() -> None:
    """Both runs of the cluster called degraded take over three times as long; few others do."""
    slow = {
        log.placed.sweep.name: log.slowdown
        for log in compare_sweeps(read_sweeps([PUBLISHED_COLLECTIVES])).logs
        if (log.slowdown or 0) >= SUSPICIOUS_RATIO
    }
    degraded = {name for name in slow if "degraded" in name}
    assert len(degraded) == 2
    assert all(2 <= slow[name] <= 6 for name in degraded)
    # its publisher's second variant of the same hosts is twice as fast
    assert set(slow) - degraded == {"b200_2x8_ib_alltoall"}
