"""The roofline's report says the right figures and keeps to its width."""

from __future__ import annotations

import re

import pytest
from rich.cells import cell_len

from planner.advise.cluster_roofline import roofline, roofline_of
from planner.inputs.values import load
from planner.problem.scenario import load_scenario
from planner.problem.topology import Topology
from planner.report.text.numbers import from_ridge
from planner.report.text.pieces import plain_text
from planner.report.text.roofline import roofline_report
from tests.report.fabricated import SCENARIO, fabricated_plan


@pytest.fixture(scope="module")
def planned():
    return roofline_of(load_scenario(SCENARIO), fabricated_plan())


def text_of(found, width=100):
    return plain_text(roofline_report(found), width)


def line_of(text, start):
    """Cells of the first line that starts so."""
    line = next(line for line in text.splitlines() if line.strip().startswith(start))
    return re.split(r"\s{2,}", line.strip())


@pytest.mark.parametrize("width", [40, 80, 100, 200])
def test_no_line_is_wider_than_the_console(planned, width):
    lines = text_of(planned, width).splitlines()
    assert max(map(cell_len, lines)) <= width
    assert all(line == line.rstrip() for line in lines)


def test_at_80_columns_nothing_is_cut(planned):
    assert "…" not in text_of(planned, 80)


def test_head_names_the_cluster_the_roofs_and_the_plan(planned):
    text = text_of(planned)
    assert text.startswith("Roofs of dgx-h100, h100-sxm-80gb")
    assert "BF16 and FP16 989.5, FP8 1,979 TFLOP/s dense" in text
    assert "66.9 TFLOP/s" in text
    assert "llama3-405b on 16,384, planned: tp8 pp16 vp2 dp128 mbs1 zero1, 6.203 s a step" in text


def test_levels_have_ridges_by_precision_and_of_the_vector_unit(planned):
    text = text_of(planned)
    assert line_of(text, "level") == ["level", "GB/s", "achieved", "BF16", "FP8", "vector"]
    assert line_of(text, "hbm") == ["hbm", "3,350", "3,015", "295", "591", "20"]
    assert line_of(text, "nvlink")[3] == "2,199"


def test_knees_have_a_size_and_a_start_up_each(planned):
    text = text_of(planned).split("Latency:")[1].split("Kernels")[0]
    sizes = line_of(text, "leaf")
    assert sizes[:2] == ["leaf", "32"]
    assert all(re.fullmatch(r"[\d.]+ [kMG]B", size) for size in sizes[2:]) and len(sizes) == 6
    assert all(cell.endswith(" us") for cell in line_of(text, "start-up")[1:])


def test_kernels_and_moves(planned):
    text = text_of(planned)
    assert line_of(text, "naive attention")[1:] == ["63", "4.7× left", "211", "bandwidth", "tensor"]
    assert line_of(text, "attention: naive → flash")[-1] == "4.7×"


def test_groups_have_a_row_and_three_walls(planned):
    text = text_of(planned)
    groups, walls = text.split("Groups of the plan")[1].split("Their three walls")
    assert line_of(groups, "tp") == ["tp", "nvlink", "410.0", "6,341", "–", "2,200", "2.9× right"]
    assert line_of(groups, "shard")[4] == "6.1e5"
    assert line_of(walls, "tp") == ["tp", "2.63 s", "1.20 s", "1.00 ms", "compute"]


def test_a_topology_alone_has_no_groups():
    text = text_of(roofline(load("gb200-nvl72", "topology", Topology)))
    assert "FP4" in text and "Groups" not in text and "planned" not in text


@pytest.mark.parametrize(
    ("margin", "said"), [(2.3, "2.3× right"), (1, "1.0× right"), (0.5, "2.0× left")]
)
def test_distance_from_the_ridge(margin, said):
    assert from_ridge(margin) == said
