"""The accuracy page and its pictures, of made-up rows whose places are known."""

from __future__ import annotations

import numpy as np
import pytest

from planner.report.plots.accuracy import (
    AXES,
    MOST_SHOWN,
    plot_predicted,
    plot_residuals,
    predicted_page,
    residuals_page,
)
from planner.report.plots.drawing import save
from planner.report.text.accuracy_tables import PREDICTED, RESIDUALS, accuracy_page


def errors(rows, mape, bias=0.01):
    return {"rows": rows, "mape_fraction": mape, "median_fraction": mape / 2,
            "bias_fraction": bias, "p95_fraction": 2 * mape}  # fmt: skip


def validation(rows, mape):
    inside = {"rows": rows, "inside_fraction": 0.8, "below_fraction": 0.1, "above_fraction": 0.1}
    return {
        "time": errors(rows, mape),
        "macro_mape_fraction": mape + 0.01,
        "by_source": {"a/b": errors(rows - 1, mape), "c/d": errors(1, 0.3, None)},
        "by_accelerator": {"h100-sxm-80gb": errors(rows, mape)},
        "by_axis": {"dp": {"9-16": errors(2, mape), "2": errors(rows - 2, mape)}},
        "intervals": {"step_seconds": {"all": inside}, "peak_bytes": {"all": inside}},
    }


def document(left=None):
    return {
        "fitted": validation(30, 0.06),
        "points": [],
        "peers": [{"rows": "old rows", "mape_fraction": 0.2, "in_sample": True,
                   "ours": {"left_out": errors(9, 0.1), "fitted": errors(9, 0.11)}}],
        "over_all_dense_rows": {"Other": 0.15},
        "leave_one_out": validation(30, 0.09) | {"left_out_by": left} if left else None,
    }  # fmt: skip


def cells(page, first):
    line = next(x for x in page.splitlines() if x.startswith(f"| {first} |"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_page_has_the_errors_of_all_rows():
    page = accuracy_page(document(), "`a command` at commit 123")
    assert "`a command` at commit 123" in page
    assert f"({PREDICTED})" in page and f"({RESIDUALS})" in page
    assert cells(page, "a/b") == [
        "a/b", "29", "6.0 %", "3.0 %", "+1.0 %", "12.0 %",
    ]  # fmt: skip
    assert cells(page, "c/d")[4:] == ["–", "60.0 %"]
    assert cells(page, "**each source once**")[2] == "7.0 %"
    assert page.index("| 2 |") < page.index("| 9-16 |")  # degrees rise
    assert "source left out" not in page


def test_sources_left_out_have_a_column():
    page = accuracy_page(document(left="source"), "x")
    assert "| source left out, MAPE |" in page
    assert "| family left out, MAPE |" in accuracy_page(document(left="family"), "x")
    assert cells(page, "a/b")[-2:] == ["9.0 %", "+1.0 %"]
    assert cells(page, "**all**")[-2:] == ["9.0 %", "+1.0 %"]
    assert cells(page, "**each source once**")[-2:] == ["10.0 %", ""]
    assert cells(page, "step") == ["step", "all", "30", "80.0 %"]


def test_every_table_is_as_wide_as_its_head():
    for left in (None, "source"):
        page = accuracy_page(document(left), "x")
        widths = set()
        for line in page.splitlines():
            if not line.startswith("|"):
                widths = set()
                continue
            widths.add(line.count("|"))
            assert len(widths) == 1, line


def test_peers_stand_beside_ours():
    page = accuracy_page(document(), "x")
    assert cells(page, "old rows (the peer fitted on them)")[1:] == [
        "20.0 %", "10.0 %", "11.0 %", "9",
    ]  # fmt: skip
    assert cells(page, "all dense rows each can express: Other")[1:4] == [
        "15.0 %",
        "–",
        "6.0 %",
    ]


# ---------------------------------------------------------------- pictures


def points():
    made = []
    for number, error in enumerate([-0.6, -0.1, 0.0, 0.2, 0.9]):
        made.append({
            "id": str(number), "fitted": number % 2 == 0, "error_fraction": error,
            "measured_seconds": 2.0 + number, "predicted_seconds": (2.0 + number) * (1 + error),
            "source": "owner/a long name", "accelerator": "h100", "software": "megatron-core",
            "precision": "bf16", "recompute": "none", "tp": "2", "cp": "1", "pp": "3-4",
            "dp": ("1", "5-8", "9-16")[number % 3],
        })  # fmt: skip
    return made


def drawn(ax, marker=None):
    return [
        (x, y)
        for line in ax.lines
        if line.get_marker() not in ("None", None) and marker in (None, line.get_marker())
        for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)
    ]


def test_every_row_is_a_mark_at_its_two_times():
    ax = plot_predicted(points())
    assert ax.get_xscale() == ax.get_yscale() == "log"
    expected = {(p["measured_seconds"], p["predicted_seconds"]) for p in points()}
    assert set(drawn(ax)) == expected
    (left, right), (bottom, top) = ax.get_xlim(), ax.get_ylim()
    assert (left, right) == (bottom, top)
    assert all(left < value < right for pair in expected for value in pair)


def test_marks_left_out_are_filled():
    ax = plot_predicted(points())
    faces = {len(line.get_xdata()): line.get_markerfacecolor() for line in ax.lines
             if line.get_marker() == "o"}  # fmt: skip
    assert faces[3] == "none" and faces[2] != "none"  # three rows were fitted on


def test_residuals_stand_in_their_columns():
    ax = plot_residuals(points(), "dp")
    labels = [label.get_text() for label in ax.get_xticklabels()]
    assert labels == ["1\n(2)", "8\n(2)", "16\n(1)"]
    heights = sorted(y for _, y in drawn(ax))
    assert heights == pytest.approx([-MOST_SHOWN, -0.1, 0.0, 0.2, MOST_SHOWN])
    assert [round(y, 2) for _, y in drawn(ax, "^")] == [MOST_SHOWN]
    assert [round(y, 2) for _, y in drawn(ax, "v")] == [-MOST_SHOWN]
    for x, y in drawn(ax):
        (column,) = {round(x)}
        names = {0: {-0.6, 0.2}, 1: {-0.1, 0.9}, 2: {0.0}}
        assert any(np.isclose(y, np.clip(e, -MOST_SHOWN, MOST_SHOWN)) for e in names[column])


def test_medians_are_drawn_and_named():
    ax = plot_residuals(points(), "dp")
    bars = [line.get_ydata()[0] for line in ax.lines if len(line.get_xdata()) == 2
            and line.get_marker() == "None" and line.get_linewidth() > 1.5]  # fmt: skip
    assert bars == pytest.approx([-0.2, 0.4, 0.0])
    assert [text.get_text() for text in ax.texts] == ["-20", "+40", "0"]


def test_pages_show_every_axis_and_keep_texts_apart(tmp_path):
    figure = residuals_page(points())
    titles = [ax.get_title(loc="left") for ax in figure.axes]
    assert titles[: len(AXES)] == list(AXES.values())
    for name, page in (("a.png", predicted_page(points())), ("b.png", figure)):
        save(page, tmp_path / name)
        assert (tmp_path / name).stat().st_size > 10_000
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()
    boxes = [ax.get_tightbbox(renderer) for ax in figure.axes]
    for i, one in enumerate(boxes):
        assert not any(one.overlaps(other) for other in boxes[i + 1 :])


def test_no_rows_are_an_empty_picture():
    assert drawn(plot_predicted([])) == []
    assert drawn(plot_residuals([], "tp")) == []
