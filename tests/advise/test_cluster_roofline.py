"""A topology's roofs, and a plan's groups under them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from planner import api
from planner.advise.cluster_roofline import COLLECTIVES, load_subject, roofline, roofline_of
from planner.cost.collectives import SIMPLE_BASE
from planner.errors import InputError, UnknownNameError
from planner.inputs.values import load
from planner.problem.scenario import Scenario, load_scenario
from planner.problem.topology import Topology
from tests.report.fabricated import SCENARIO, fabricated_plan

SMALL = "llama3-8b-h100x8"


@pytest.fixture(scope="module")
def dgx():
    return roofline(load("dgx-h100", "topology", Topology))


@pytest.fixture(scope="module")
def planned():
    return roofline_of(load_scenario(SCENARIO), fabricated_plan())


def test_levels_run_from_memory_outwards(dgx):
    assert [level.name for level in dgx.levels] == ["hbm", "nvlink", "leaf", "spine"]
    ridges = [level.ridges["bf16"] for level in dgx.levels]
    assert ridges == pytest.approx([295.4, 2198.9, 19790, 19790], rel=1e-3)
    for level in dgx.levels:
        for precision, peak in dgx.peak_flops.items():
            assert level.ridges[precision] * level.bytes_per_second == pytest.approx(peak)
        vector = level.ridges["vector"] * level.bytes_per_second
        assert vector == pytest.approx(dgx.vector_flops)
        assert level.reached_bytes_per_second < level.bytes_per_second


def test_messages_at_the_knee_take_start_up_and_bytes_alike(dgx):
    assert dgx.level("hbm").messages == {}
    for level in dgx.levels[1:]:
        assert list(level.messages) == list(COLLECTIVES)
        for m in level.messages.values():
            assert m.seconds == tuple(sorted(m.seconds))
            assert m.seconds[0] == pytest.approx(m.latency_seconds, rel=0.2)
            least = 2 * m.latency_seconds  # the ramp adds to it
            at = next(i for i, size in enumerate(m.num_bytes) if size >= m.knee_bytes)
            assert m.seconds[at] >= least
            assert m.seconds[at - 1] < 5 * least


def test_knee_of_send_receive_by_hand(dgx):
    """InfiniBand NDR: (base of protocol Simple + hop) · 50 GB/s · the achieved share."""
    fabric = load("dgx-h100", "topology", Topology).tiers[1].fabric
    latency = fabric.base_seconds * SIMPLE_BASE + fabric.hop_seconds
    found = dgx.level("leaf").messages["send_receive"]
    assert found.latency_seconds == pytest.approx(latency)
    rate = fabric.bytes_per_second * fabric.p2p_efficiency
    assert found.knee_bytes == pytest.approx(latency * rate)


def test_operators_stand_on_hbms_roof(dgx):
    beta = dgx.levels[0].bytes_per_second
    points = {point.name: point for point in dgx.operators}
    assert points["GEMM"].wall == points["flash attention"].wall == "compute"
    assert points["naive attention"].intensity == pytest.approx(64, rel=0.02)
    assert points["decode, batch 1"].intensity == pytest.approx(1, rel=1e-3)
    for name in ("softmax", "norm", "residual add"):
        assert points[name].unit == "vector"
        assert points[name].ridge == pytest.approx(dgx.vector_flops / beta)
    for point in dgx.operators:
        bound = min(point.ridge * beta, point.intensity * beta)
        assert point.attainable_flops == pytest.approx(bound)


def test_moves_gain(dgx):
    gains = {move.name: move.gain for move in dgx.moves}
    assert gains["GEMM: BF16 → FP8"] == pytest.approx(2)
    assert gains["decode, batch 1: BF16 → FP8"] == pytest.approx(2, rel=1e-3)
    assert gains["attention: naive → flash"] == pytest.approx(4.69, rel=0.01)
    assert all(gain > 1 for gain in gains.values())
    for move in dgx.moves:
        assert move.intensity_after > move.intensity_before


@pytest.mark.parametrize("name", ["dgx-v100", "trainium2", "tpu-v6e"])
def test_parts_without_bf16_fp8_or_scratchpad(name):
    found = roofline(load(name, "topology", Topology))
    assert found.precision == ("fp16" if name == "dgx-v100" else "bf16")
    has_sram = "flash attention" in {point.name for point in found.operators}
    assert has_sram == (name == "dgx-v100")


def test_groups_stand_on_their_slowest_tier(planned):
    points = {point.name: point for point in planned.groups}
    assert list(points) == ["tp", "shard", "pp"]  # cp has one member
    tp, plan = points["tp"], fabricated_plan()
    assert (tp.tier, tp.members, tp.bytes) == ("nvlink", 8, 4.1e11)
    assert tp.intensity == pytest.approx(plan.groups["tp"].intensity)
    assert tp.margin == pytest.approx(tp.intensity / 2200)
    assert tp.compute_seconds == pytest.approx(2.6e15 / 989.5e12)
    assert tp.wall == "compute"
    assert tp.attainable_flops == pytest.approx(planned.peak)
    assert points["shard"].exposed_intensity == pytest.approx(6.1e5)


def test_a_group_over_two_tiers_is_measured_on_the_slower():
    plan = fabricated_plan()
    shard = plan.groups["shard"]
    tiers = {
        "leaf": {"bytes": 3.8e10, "busy_seconds": 0.2, "ridge": 19790.0},
        "spine": {"bytes": 1.9e10, "busy_seconds": 4.0, "ridge": 138530.0},
    }
    groups = {"shard": replace(shard, tiers=tiers)}
    (point,) = roofline_of(load_scenario(SCENARIO), replace(plan, groups=groups)).groups
    assert (point.tier, point.bytes, point.wall) == ("spine", 1.9e10, "bandwidth")
    assert point.intensity == pytest.approx(2 * shard.intensity)
    assert point.exposed_intensity == pytest.approx(2 * shard.exposed_intensity)
    assert point.attainable_flops == pytest.approx(point.flops / 4.0)


def test_the_plans_fill_sets_the_groups_of_the_knees(planned):
    assert planned.level("nvlink").messages["all_gather"].members == 8
    assert planned.level("spine").messages["all_gather"].members == 64


def test_a_scenario_is_planned_and_agrees_with_its_plan():
    found = roofline(load_scenario(SMALL))
    assert found.plan is not None and found.plan.layout is not None
    assert {p.name for p in found.groups} == set(found.plan.groups)
    for point in found.groups:
        assert point.wall == found.plan.groups[point.name].wall


def test_document_is_json_with_derived_figures(planned):
    document = json.loads(json.dumps(planned.to_document(), allow_nan=False))
    assert document["groups"][0]["margin"] == pytest.approx(planned.groups[0].margin)
    assert document["moves"][0]["gain"] == pytest.approx(planned.moves[0].gain)
    assert "seconds" not in document["levels"][1]["messages"]["all_gather"]
    assert document["plan"]["inputs_sha256"] == fabricated_plan().inputs_sha256


def test_subjects_are_told_apart(tmp_path):
    assert isinstance(load_subject("dgx-h100"), Topology)
    assert isinstance(load_subject(SMALL), Scenario)
    root = api.files.data_root()
    assert isinstance(load_subject(root / "topologies/dgx-h100.yaml"), Topology)
    assert isinstance(load_subject(str(root / f"scenarios/{SMALL}.yaml")), Scenario)
    wider = load_subject("dgx-h100", {"tiers.0.width": "16"})
    assert isinstance(wider, Topology) and wider.widths[0] == 16


def test_misspelt_subjects():
    with pytest.raises(UnknownNameError, match="did you mean 'dgx-h100'"):
        load_subject("dgx-h10")
    with pytest.raises(InputError, match=r"missing\.yaml"):
        load_subject("missing.yaml")


def test_generations_put_an_unlisted_part_last(dgx):
    parts = api.generations(replace(dgx, accelerator="toy"))
    assert [part.name for part in parts][-1] == "toy"
    assert parts[-1].family == ""
    assert "toy" not in [part.name for part in api.generations()]
    known = [part.ridges["bf16"] for part in api.generations() if part.name == "h100-sxm-80gb"]
    assert known == pytest.approx([295.4], rel=1e-3)
