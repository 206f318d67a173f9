"""Predictions beside measured collectives: the published ones, text, and what cannot be scored."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planner import api
from planner.errors import InputError
from planner.evidence.collective_logs import PUBLISHED_COLLECTIVES, Sweep, bus_factor, read_sweeps
from planner.evidence.fabrics import UnmatchedError, place
from planner.evidence.validate_collectives import CollectivesValidation, compare_sweeps
from planner.inputs.values import load
from planner.problem.topology import Topology

DATA = Path(__file__).parent.parent / "data"

ROW: Mapping[str, Any] = {
    "id": "mine",
    "gpu": "H100-SXM",
    "nodes": 2,
    "ranks": 16,
    "network": "IB NDR 8x400Gb",
    "op": "all_reduce",
    "source": "test",
    "size_bytes_time_us": [[1024, 30.0], [1073741824, 4500.0]],
}


@pytest.fixture(scope="module")
def published() -> CollectivesValidation:
    return compare_sweeps(read_sweeps([PUBLISHED_COLLECTIVES]))


def rows(tmp_path: Path, *changes: Mapping[str, Any]) -> Path:
    """JSON lines of ROW with changes."""
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(json.dumps({**ROW, **change}) for change in changes), "utf-8")
    return path


# ---------------------------------------------------------------- the published runs


def test_published_runs_are_predicted(published: CollectivesValidation) -> None:
    """All 65 are scored; fit and held out together are within 10 % (median), 35 % (p95)."""
    assert len(published.logs) == 65
    assert published.skipped == {}
    headline = published.headline
    assert headline.median_fraction is not None and headline.p95_fraction is not None
    assert headline.median_fraction <= 0.10
    assert headline.p95_fraction <= 0.35


def test_what_no_fit_saw_is_predicted_too(published: CollectivesValidation) -> None:
    """And nearer than the plain line, whose median error is a third as large again.

    The 95th percentile is above the 35 % hoped for: twelve points are one cluster's all-to-all at
    half the rate of its second run, thirteen are 256 GH200 nodes at half the rate of 512.
    """
    held_out = published.section("held_out")
    assert held_out.logs >= 40
    assert held_out.median_fraction is not None and held_out.line_median_fraction is not None
    assert held_out.median_fraction <= 0.09
    assert held_out.p95_fraction is not None and held_out.p95_fraction <= 0.42
    assert held_out.line_median_fraction > 1.3 * held_out.median_fraction


def test_held_out_runs_of_sound_hosts_are_within_the_bounds(
    published: CollectivesValidation,
) -> None:
    """8 % (median) and 32 % (p95), suspicious hosts apart: the two called degraded and three."""
    flagged = {log.placed.sweep.name for log in published.logs if log.suspicious}
    assert {log.placed.sweep.name for log in published.logs if log.section == "degraded"} < flagged
    assert len(flagged) == 5
    sound = published.sound
    assert sound.logs == published.section("held_out").logs - 3
    assert sound.median_fraction is not None and sound.median_fraction <= 0.081
    assert sound.p95_fraction is not None and sound.p95_fraction <= 0.32


def test_no_log_is_near_the_ratio_that_makes_its_hosts_suspicious(
    published: CollectivesValidation,
) -> None:
    """No sound log takes over 1.25 times as long as its peers, and no other under 1.6 times."""
    ratios = [log.peer_slowdown for log in published.logs if log.peer_slowdown is not None]
    assert len(ratios) >= 20
    assert sum(ratio >= 1.6 for ratio in ratios) == 5
    assert not any(1.25 < ratio < 1.6 for ratio in ratios)


def test_slingshot_is_predicted_from_two_nodes(published: CollectivesValidation) -> None:
    """Up to 32 KiB, rendezvous and all: 4 to 512 nodes within 20 % but for two points in 47."""
    found = [
        error
        for log in published.logs
        if "slingshot" in log.placed.sweep.name and log.placed.split[1:] >= (4.0,)
        for error in log.errors[log.placed.sweep.num_bytes <= 2**15]
    ]
    assert len(found) >= 45
    assert sum(abs(error) > 0.2 for error in found) <= 2


def test_sections_are_apart(published: CollectivesValidation) -> None:
    names: dict[str, set[str]] = {}
    for log in published.logs:
        names.setdefault(log.section, set()).add(log.placed.sweep.name)
    assert names["degraded"] == {
        "h100_2x8_ib_degraded_allreduce", "h100_2x8_ib_degraded_ring_allreduce",
    }  # fmt: skip
    assert names["without_fit"] == {"a100_2x8_oci_allreduce", "h800_1x8_broadcast"}
    assert {"h100_1x8_allreduce_nvls", "h100_2x8_ib_allreduce"} <= names["fit"]
    whole = published.headline
    assert whole.logs == 61 == len(names["fit"]) + len(names["held_out"])
    assert whole.points == sum(published.section(n).points for n in ("fit", "held_out"))


def test_one_all_reduce_fits_a_fabric(published: CollectivesValidation) -> None:
    """The other three: a fabric with an all-gather alone, the rate of short sends, and posting."""
    fitted = [log.placed.sweep for log in published.logs if log.section == "fit"]
    others = {sweep.name for sweep in fitted if sweep.operation != "all_reduce"}
    assert others == {
        "h100_2x8_gcp_a3high_allgather", "h100_1x8_x_sendrecv", "b200_2x8_ib_alltoall_v2",
    }  # fmt: skip


def test_points_that_are_not_to_be_scored_are_left_out(published: CollectivesValidation) -> None:
    (log,) = (g for g in published.logs if g.placed.sweep.name.startswith("gh200_512x4"))
    assert 4294967296 not in log.placed.sweep.num_bytes
    assert log.placed.sweep.notes == ("1 points marked not_scored are left out",)


def test_document_is_json_and_pools_points(published: CollectivesValidation) -> None:
    document = json.loads(json.dumps(published.to_document(), allow_nan=False))
    assert document["logs"] == 61
    assert len(document["by_log"]) == 65
    errors = np.concatenate([g.errors for g in published.logs if g.section in ("fit", "held_out")])
    assert document["median_fraction"] == pytest.approx(np.median(np.abs(errors)))
    assert document["p95_fraction"] == pytest.approx(np.quantile(np.abs(errors), 0.95))
    log = document["by_log"]["b200_2x8_ib_allgather"]
    assert log["fabrics"] == ["nvlink5", "infiniband-ndr"]
    assert log["split"] == {"scale-up": 8.0, "network": 2.0}
    assert (log["operation"], log["ranks"], log["suspicious"]) == ("all_gather", 16, False)
    assert document["by_log"]["h100_2x8_ib_degraded_allreduce"]["suspicious"]


# ---------------------------------------------------------------- peers


def test_a_log_far_slower_than_a_larger_group_is_suspected(tmp_path: Path) -> None:
    """Two nodes take 2 times as long as four; four have no peer, whatever two take."""
    times = [[2**20, 200.0], [2**28, 8000.0], [2**29, 16000.0], [2**30, 32000.0]]
    halved = [[size, microseconds / 2] for size, microseconds in times]
    path = rows(
        tmp_path,
        {"size_bytes_time_us": times},
        {"id": "four", "nodes": 4, "ranks": 32, "size_bytes_time_us": halved},
        {"id": "gather", "op": "all_gather", "nodes": 4, "ranks": 32, "size_bytes_time_us": halved},
        {"id": "roce", "network": "RoCE 8x400Gb", "size_bytes_time_us": halved},
    )
    two, four, gather, roce = compare_sweeps(read_sweeps([path])).logs
    assert two.peer_slowdown == pytest.approx(2.0)
    assert two.suspicious
    assert (four.peer_slowdown, gather.peer_slowdown, roce.peer_slowdown) == (None, None, None)


def test_repeats_are_compared_with_the_median_of_the_others(tmp_path: Path) -> None:
    """1.4 times is within what clusters differ by, 1.6 times is not; the fastest is not judged."""
    factors = {"a": 1.0, "b": 1.0, "c": 1.4, "d": 1.6}
    path = rows(
        tmp_path,
        *(
            {"id": name, "size_bytes_time_us": [[2**30, 4500.0 * factor]]}
            for name, factor in factors.items()
        ),
    )
    logs = compare_sweeps(read_sweeps([path])).logs
    assert [log.peer_slowdown for log in logs] == pytest.approx([1 / 1.4, 1 / 1.4, 1.4, 1.6])
    assert [log.placed.sweep.name for log in logs if log.suspicious] == ["d"]


# ---------------------------------------------------------------- files


def test_text_with_its_configuration_needs_no_topology() -> None:
    found = api.validate_collectives([DATA / "nccl" / "all_to_all_cut.txt"])
    (log,) = found.logs
    assert [tier.fabric.name for tier in log.placed.spanned] == ["nvlink4", "infiniband-ndr"]
    assert log.placed.split == (8.0, 4.0)
    assert log.placed.sweep.notes == ("line 7 is cut short",)


def test_text_whose_header_lists_ranks_matches_a_node_s_fabric() -> None:
    found = api.validate_collectives([DATA / "nccl" / "all_gather_old.txt"])
    (log,) = found.logs
    assert [tier.fabric.name for tier in log.placed.spanned] == ["nvlink3"]
    assert log.placed.split == (4.0,)


def test_text_that_does_not_say_its_network_needs_a_topology() -> None:
    path = DATA / "nccl" / "all_reduce_two_nodes.txt"
    unknown = api.validate_collectives([path])
    assert unknown.logs == ()
    assert "network" in unknown.skipped["all_reduce_two_nodes"]
    given = api.validate_collectives([path], "dgx-h100")
    assert given.logs[0].placed.split == (2.0, 2.0, 1.0)


def test_tables_of_one_file_are_named_by_their_lines() -> None:
    found = api.validate_collectives([DATA / "nccl" / "several_labelled.txt"])
    assert [log.placed.sweep.name for log in found.logs] == [
        "several_labelled:7", "several_labelled:14",
    ]  # fmt: skip


def test_bus_bandwidth_is_that_of_nccl_tests() -> None:
    """As nccl-tests' PERFORMANCE.md has it."""
    assert bus_factor("all_reduce", 8) == 2 * 7 / 8
    for operation in ("all_gather", "reduce_scatter", "alltoall"):
        assert bus_factor(operation, 8) == 7 / 8
    assert bus_factor("sendrecv", 8) == bus_factor("broadcast", 8) == 1.0


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"op": "hypercube"}, "op: the operation 'hypercube' is not one"),
        ({"ranks": 15}, "ranks: 15 ranks do not fill 2 nodes evenly"),
        ({"ranks": -1}, "ranks"),
        ({"size_bytes_time_us": []}, "size_bytes_time_us"),
        ({"size_bytes_time_us": [[8, -1.0]]}, "size_bytes_time_us"),
        ({"gpu": None}, "gpu"),
    ],
)
def test_wrong_rows_are_named(tmp_path: Path, change: Mapping[str, Any], says: str) -> None:
    path = rows(tmp_path, {}, change)
    with pytest.raises(InputError) as caught:
        read_sweeps([path])
    assert str(caught.value).startswith(f"{path}:2")
    assert says in str(caught.value)


def test_a_line_that_is_no_json(tmp_path: Path) -> None:
    path = rows(tmp_path, {})
    path.write_text(path.read_text("utf-8") + "\n{broken\n", "utf-8")
    with pytest.raises(InputError, match=r"rows\.jsonl:2:2: not readable as JSON"):
        read_sweeps([path])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"gpu": "Gaudi3"}, "no shipped scale-up fabric is known for 'Gaudi3'"),
        ({"gpu": "H100-PCIe"}, "no shipped scale-up fabric"),
        ({"network": "carrier pigeon"}, "no shipped fabric is known for the network"),
        ({"ranks": 32}, "16 ranks a node are more than its 8 accelerators"),
    ],
)
def test_what_matches_nothing_is_skipped(
    tmp_path: Path, change: Mapping[str, Any], says: str
) -> None:
    found = api.validate_collectives([rows(tmp_path, change)])
    assert found.logs == ()
    assert says in found.skipped["mine"]
    assert found.to_document()["median_fraction"] is None


# ---------------------------------------------------------------- matching


@pytest.mark.parametrize(
    ("gpu", "nodes", "ranks", "network", "fabrics", "split"),
    [
        ("NVIDIA H100 80GB HBM3", 4, 32, "InfiniBand NDR", "nvlink4 infiniband-ndr", (8, 4)),
        ("H200", 2, 16, "8x400Gb RoCE default settings", "nvlink4 roce-400", (8, 2)),
        ("H100-SXM", 10, 10, "8x400Gb IB-class per node", "infiniband-ndr", (1, 10)),
        ("A100-SXM4-80GB", 2, 16, "EFA 4x100Gb per node", "nvlink3 aws-efa-50", (8, 2)),
        ("H100", 2, 16, "EFA 32x100Gb per node", "nvlink4 aws-efa-400", (8, 2)),
        ("A100-SXM4-40GB", 2, 16, "HDR", "nvlink3 infiniband-hdr", (8, 2)),
        ("A100-SXM4-40GB", 2, 16, "RoCE (cloud)", "nvlink3 roce-200", (8, 2)),
        ("GB200", 32, 128, "RoCE 4..8x400Gb per node", "nvlink5-nvl72 roce-400", (64, 2)),
        ("GB200", 36, 144, "4x400Gb IB", "nvlink5-nvl72 infiniband-ndr", (72, 2)),
        ("GB300", 32, 128, "RoCE 8x400 Gb/s", "nvlink5-nvl72-gb300 roce-800", (64, 2)),
        ("GH200", 4, 16, "Slingshot-11", "nvlink4-gh200 slingshot-11", (4, 4)),
        ("H100", 2, 16, "GPUDirect-TCPXO 8x200Gb", "nvlink4 gcp-tcpxo", (8, 2)),
        ("H100", 2, 16, "GPUDirect-TCPX 4x200Gb", "nvlink4 gcp-tcpx", (8, 2)),
        ("MI325X", 1, 8, "none", "xgmi-mi300x", (8,)),
        ("B200-SXM", 1, 4, "none", "nvlink5", (4,)),
    ],
)
def test_words_of_a_configuration(
    gpu: str, nodes: int, ranks: int, network: str, fabrics: str, split: tuple[int, ...]
) -> None:
    placed = place(sweep(gpu, nodes, ranks, network))
    assert " ".join(tier.fabric.name for tier in placed.spanned) == fabrics
    assert placed.split == split
    assert placed.num_ranks == ranks


def sweep(gpu: str | None, nodes: int | None, ranks: int | None, network: str | None) -> Sweep:
    sizes = np.array([1024.0, 2.0**30])
    return Sweep("x", "all_reduce", gpu, nodes, ranks, network, "", sizes, np.ones(2), "x.txt", 1)


@pytest.mark.parametrize(
    ("nodes", "ranks", "topology", "split"),
    [
        (None, 8, "dgx-h100", (8, 1, 1)),
        (None, 64, "dgx-h100", (8, 8, 1)),
        (4, 8, "dgx-h100", (2, 4, 1)),
        (64, 512, "dgx-h100", (8, 32, 2)),
        (32, 128, "gb200-nvl72", (64, 2, 1)),
    ],
)
def test_ranks_on_a_topology(
    nodes: int | None, ranks: int, topology: str, split: tuple[int, ...]
) -> None:
    found = place(sweep(None, nodes, ranks, None), load(topology, "topology", Topology))
    assert found.split == split


def test_ranks_that_a_topology_has_not() -> None:
    with pytest.raises(InputError, match="ranks are more than the"):
        place(sweep(None, None, 2**23, None), load("dgx-h100", "topology", Topology))
    with pytest.raises(UnmatchedError, match="does not say how many ranks"):
        place(sweep("H100", 1, None, "none"))
