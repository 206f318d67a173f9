"""Pictures by their structure: lines, markers, labels, limits; never by their pixels."""

from __future__ import annotations

import builtins
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from planner.advise.cluster_roofline import generations, roofline, roofline_of
from planner.errors import InputError, PlannerError
from planner.inputs.values import load
from planner.problem.scenario import load_scenario
from planner.problem.topology import Topology
from planner.report.plots import drawing
from planner.report.plots import roofs as plots
from planner.report.plots.drawing import STYLES
from planner.report.plots.roofs import CALL_SECONDS
from tests.report.fabricated import SCENARIO, fabricated_plan

CROWDED = ("dgx-h100", "gb200-nvl72", "h100-nvl", "meta-24k", "h20", "trainium2")
"""Coinciding bandwidths, three precisions, near slopes, four tiers, a low ridge, long names."""


@pytest.fixture(scope="module")
def planned():
    """Groups at the compute roof and one that its tier holds back."""
    plan = fabricated_plan()
    slow = replace(
        plan.groups["shard"], intensity=5e3, bytes=2.6e15 / 5e3, exposed_intensity=1e4,
        tiers={"leaf": {"bytes": 2.6e15 / 5e3, "busy_seconds": 11.4, "ridge": 19790.0}},
    )  # fmt: skip
    found = replace(plan, groups={**plan.groups, "shard": slow})
    return roofline_of(load_scenario(SCENARIO), found)


@pytest.fixture(scope="module")
def cluster():
    return roofline(load("dgx-h100", "topology", Topology))


@pytest.fixture(scope="module")
def parts():
    return generations()


def texts(ax):
    return [text.get_text() for text in ax.findobj(Text) if text.get_text()]


def lines(ax, num_points):
    """x and y of every line with so many points."""
    found = [(line.get_xdata(), line.get_ydata()) for line in ax.lines]
    return [(np.asarray(x), np.asarray(y)) for x, y in found if len(x) == num_points]


def has_point(ax, x, y):
    return any(
        np.any(np.isclose(np.asarray(line.get_xdata(), float), x, rtol=1e-9)
               & np.isclose(np.asarray(line.get_ydata(), float), y, rtol=1e-9))
        for line in ax.lines if line.get_marker() != "None"
    )  # fmt: skip


def level_boxes(figure):
    """Text and box of every level text that is drawn inside its axes' limits."""
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()
    found = []
    for ax in figure.axes:
        hidden = set()
        for axis, (low, high) in ((ax.xaxis, ax.get_xlim()), (ax.yaxis, ax.get_ylim())):
            for tick in (*axis.majorTicks, *axis.minorTicks):
                if not min(low, high) <= tick.get_loc() <= max(low, high):
                    hidden |= {tick.label1, tick.label2}
        for text in ax.findobj(Text):
            shown = text.get_visible() and text.get_text().strip() and text not in hidden
            if shown and not (text.get_rotation() or 0) % 90:
                found.append((text.get_text(), Text.get_window_extent(text, renderer)))
    return found


# ---------------------------------------------------------------- stacked roofs


def test_each_bandwidth_is_a_slope_of_its_own_colour(cluster):
    ax = plots.plot_roofs(cluster)
    assert ax.get_xscale() == ax.get_yscale() == "log"
    slopes = [
        (line.get_ydata()[0] / line.get_xdata()[0], line.get_color())
        for line in ax.lines
        if len(line.get_xdata()) == 2 and line.get_xdata()[0] < line.get_xdata()[1]
        and line.get_ydata()[0] < line.get_ydata()[1]
    ]  # fmt: skip
    assert [slope for slope, _ in slopes] == pytest.approx([3.35e12, 450e9, 50e9])
    assert [colour for _, colour in slopes] == [colour for colour, _ in STYLES[:3]]


def test_roofs_end_at_the_peaks_and_ridges_are_marked(cluster):
    ax = plots.plot_roofs(cluster)
    heights = {float(y[0]) for x, y in lines(ax, 2) if y[0] == y[1]}
    assert {989.5e12, 1979e12, 66.9e12} <= heights
    for ridge in (989.5e12 / 3.35e12, 989.5e12 / 450e9, 19790.0):
        assert has_point(ax, ridge, 989.5e12)
    said = "\n".join(texts(ax))
    for label in ("hbm\n295", "nvlink\n2,199", "leaf, spine\n19,790", "hbm  3.35 TB/s",
                  "BF16, FP16\n989.5", "FP8\n1,979", "vector unit\n66.9"):  # fmt: skip
        assert label in said


def test_latency_roofs_start_at_the_knee(cluster):
    ax = plots.plot_roofs(cluster)
    for name in ("nvlink", "leaf", "spine"):
        level = cluster.level(name)
        messages = level.messages["all_gather"]
        height = cluster.peak * CALL_SECONDS / messages.latency_seconds
        assert has_point(ax, height / level.bytes_per_second, height)
        assert f"latency\n{name} × {messages.members}" in texts(ax)


def test_every_operator_is_marked_and_named(cluster):
    ax = plots.plot_roofs(cluster)
    for point in cluster.operators:
        assert has_point(ax, point.intensity, point.attainable_flops)
        assert point.name in texts(ax)


def test_every_group_is_marked_filled_and_open(planned):
    ax = plots.plot_roofs(planned)
    assert [group.wall for group in planned.groups] == ["compute", "bandwidth", "compute"]
    for group in planned.groups:
        assert has_point(ax, group.intensity, group.attainable_flops)
        if group.exposed_intensity is not None:
            at = min(planned.peak, group.exposed_intensity * planned.peak / group.ridge)
            assert has_point(ax, group.exposed_intensity, at)
    said = texts(ax)
    assert "tp on nvlink\n2.9× right of ridge" in said
    assert "shard on leaf\n4.0× left of ridge" in said
    assert "Roofs of dgx-h100, BF16: llama3-405b on 16,384 × h100-sxm-80gb" in said
    legend = [text.get_text() for text in ax.get_legend().get_texts()]
    assert {"group, per byte moved", "group, per exposed byte"} <= set(legend)
    assert len(set(legend)) == len(legend)


def test_limits_hold_every_marker(planned):
    ax = plots.plot_roofs(planned)
    (left, right), (bottom, top) = ax.get_xlim(), ax.get_ylim()
    for line in ax.lines:
        x, y = (np.asarray(data, float) for data in (line.get_xdata(), line.get_ydata()))
        assert np.all((x >= 0.999 * left) & (x <= 1.001 * right))
        assert np.all((y >= 0.999 * bottom) & (y <= 1.001 * top))


@pytest.mark.slow
@pytest.mark.parametrize("name", CROWDED)
def test_no_label_covers_another_or_leaves_the_page(name, parts):
    found = roofline(load(name, "topology", Topology))
    figure = plots.roofs_page(found, generations(found) if name == "h20" else parts)
    assert_readable(figure)


def test_no_label_of_a_plan_covers_another(planned, parts):
    assert_readable(plots.roofs_page(planned, parts))


def assert_readable(figure):
    width, height = figure.canvas.get_width_height()
    boxes = level_boxes(figure)
    assert len(boxes) > 40
    for text, box in boxes:
        assert box.x0 >= -1 and box.y0 >= -1 and box.x1 <= width + 1 and box.y1 <= height + 1, text
    for (first, a), (second, b) in combinations(boxes, 2):
        across = min(a.x1, b.x1) - max(a.x0, b.x0)
        up = min(a.y1, b.y1) - max(a.y0, b.y0)
        assert across <= 1.5 or up <= 1.5, (first, second)


def test_nothing_is_printed_small(planned, parts):
    figure = plots.roofs_page(planned, parts)
    assert min(t.get_fontsize() for t in figure.findobj(Text) if t.get_text().strip()) >= 7.5


def test_styles_differ_without_colour():
    assert len({str(style) for _, style in STYLES}) == len({c for c, _ in STYLES}) == len(STYLES)


def test_names_with_dollars_are_names(cluster):
    ax = plots.plot_roofs(replace(cluster, topology="$a_{b$", accelerator="c\nd$"))
    ax.get_figure().canvas.draw()
    assert r"Roofs of \$a_{b\$, BF16: c d\$" in texts(ax)


# ---------------------------------------------------------------- message sizes, generations


def test_message_curves_lie_over_their_two_roofs(cluster):
    ax = plots.plot_message_seconds(cluster)
    messages = [level.messages["all_gather"] for level in cluster.levels[1:]]
    curves = lines(ax, len(messages[0].num_bytes))
    assert len(curves) == len(messages) == 3
    for (_, y), m in zip(curves, messages, strict=True):
        assert y == pytest.approx(m.seconds)
    for (x, y), m in zip(lines(ax, 3), messages, strict=True):
        assert x[1] == m.knee_bytes
        assert y[0] == y[1] == pytest.approx(m.latency_seconds)
        assert y[2] == pytest.approx(m.latency_seconds * x[2] / x[1])
    legend = [text.get_text() for text in ax.get_legend().get_texts()]
    assert [text.split(":")[0] for text in legend] == ["nvlink × 8", "leaf × 32", "spine × 512"]
    assert ax.get_xlabel() == "Message size"


def test_other_collectives_have_their_curves(cluster):
    ax = plots.plot_message_seconds(cluster, collective="send_receive")
    assert ax.get_title(loc="left") == "Latency knee of send-receives"


def test_ridges_run_by_generation_within_a_family(parts):
    ax = plots.plot_ridges(parts, highlight="h100-sxm-80gb")
    ticks = [text.get_text() for text in ax.get_xticklabels()]
    assert ticks[:3] == ["V100", "A100", "H100"] and "MI300X" in ticks
    x, y = np.asarray(ax.lines[0].get_xdata()), np.asarray(ax.lines[0].get_ydata())
    assert y[2] == pytest.approx(295.4, rel=1e-3)
    assert np.all(np.diff(x) > 0)
    assert y[2] > y[1] > y[0]  # the memory wall
    (band,) = ax.patches
    assert band.get_x() < x[2] < band.get_x() + band.get_width()
    legend = [text.get_text() for text in ax.get_legend().get_texts()]
    assert legend == ["16-bit", "FP8", "FP4"]
    assert {"295", "206", "312"} <= set(texts(ax))


def test_plots_draw_on_the_axes_they_are_given(planned, parts):
    figure = Figure(figsize=(8, 5))
    ax = figure.add_subplot()
    assert plots.plot_ridges(parts, ax) is ax
    assert plots.plot_message_seconds(planned, figure.add_subplot()) in figure.axes


# ---------------------------------------------------------------- files


@pytest.mark.parametrize(
    ("name", "start"), [("a.svg", b"<?xml"), ("b.PNG", b"\x89PNG"), ("new/c.pdf", b"%PDF")]
)
def test_files_of_three_kinds(name, start, parts, tmp_path):
    figure = plots.plot_ridges(parts).get_figure()
    for folder in ("one", "two"):
        drawing.save(figure, tmp_path / folder / name)
    written = (tmp_path / "one" / name).read_bytes()
    assert written.startswith(start)
    assert written == (tmp_path / "two" / name).read_bytes()


@pytest.mark.parametrize("name", ["roofs.jpg", "roofs", "roofs.pngg", ".svg"])
def test_other_kinds_are_refused(name):
    with pytest.raises(InputError, match=r"\.svg, \.png, \.pdf") as caught:
        drawing.check_format(name)
    assert caught.value.key == "--out"
    if name == "roofs.pngg":
        assert "did you mean 'png'" in str(caught.value)


def test_a_place_that_cannot_be_written(parts, tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        drawing.save(plots.plot_ridges(parts).get_figure(), tmp_path / "taken" / "a.png")


def test_without_matplotlib_the_extra_is_named(monkeypatch, cluster):
    real = builtins.__import__

    def missing(name, *args, **more):
        if name.startswith("matplotlib"):
            raise ModuleNotFoundError(f"No module named '{name}'")
        return real(name, *args, **more)

    monkeypatch.setattr(builtins, "__import__", missing)
    for draw in (lambda: drawing.check_format("a.svg"), lambda: plots.plot_roofs(cluster)):
        with pytest.raises(PlannerError, match=r"pip install 'parallelism-planner\[plot\]'"):
            draw()
