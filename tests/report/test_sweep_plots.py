"""Pictures of sweeps: what is drawn where, read off the axes."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from planner.report.page.pictures import sweep_pictures
from planner.report.plots.drawing import page_of, save
from planner.report.plots.sweep_curves import front_of, plot_pareto, plot_scaling
from planner.report.plots.sweep_grid import grid_of, plot_heat_map, plot_layout_map
from planner.report.plots.tornado import base_of, changes_from, plot_tornado
from planner.report.text.sweep_rows import (
    at_fixed_values,
    reason_of,
    text_without_plan,
    value_text,
    values_of,
    varying,
)
from tests.made_sweep import AXES, HOSTILE, hostile_sweep, made_row, made_rows

ROWS = made_rows()


def texts(ax: Any) -> list[str]:
    return [text.get_text() for text in ax.texts]


def overlapping(ax: Any, margin: float = 1.0) -> list[tuple[str, str]]:
    """Pairs of texts that cover each other by more than `margin` pixels."""
    figure = page_of(ax)
    figure.canvas.draw()
    shown = [text for text in ax.texts if text.get_text().strip()]
    boxes = [(text.get_text(), text.get_window_extent()) for text in shown]
    return [
        (a, b)
        for (a, one), (b, other) in itertools.combinations(boxes, 2)
        if min(one.x1, other.x1) - max(one.x0, other.x0) > margin
        and min(one.y1, other.y1) - max(one.y0, other.y0) > margin
    ]


def outside(ax: Any) -> list[str]:
    """Texts that stand beyond the page."""
    figure = page_of(ax)
    figure.canvas.draw()
    page = figure.bbox
    found = [*ax.texts, ax._left_title]
    for axis in (ax.xaxis, ax.yaxis) if ax.axison else ():
        low, high = sorted(axis.get_view_interval())
        ticks = axis.get_major_ticks()
        found += [tick.label1 for tick in ticks if low <= tick.get_loc() <= high]
    return [
        text.get_text()
        for text in found
        if text.get_text().strip() and text.get_visible()
        for box in [text.get_window_extent()]
        if box.x0 < -1 or box.y0 < -1 or box.x1 > page.x1 + 1 or box.y1 > page.y1 + 1
    ]


DRAWN = {
    "heat": lambda rows, axes: plot_heat_map(rows, axes),
    "map": lambda rows, axes: plot_layout_map(rows, axes),
    "scaling": lambda rows, axes: plot_scaling(rows, axes),
    "pareto": lambda rows, axes: plot_pareto(rows),
    "cost": lambda rows, axes: plot_pareto(rows, "cost"),
    "tornado": lambda rows, axes: plot_tornado(rows, axes),
}


@pytest.mark.parametrize("name", DRAWN)
def test_texts_stay_on_the_page_and_off_each_other(name: str) -> None:
    ax = DRAWN[name](ROWS, AXES)
    assert overlapping(ax) == []
    assert outside(ax) == []


@pytest.mark.parametrize("name", DRAWN)
def test_one_curve_of_counts_alone(name: str) -> None:
    rows = [made_row(i, 8 * 2**i, 4096) for i in range(8)]
    ax = DRAWN[name](rows, ("num_accelerators",))
    assert overlapping(ax) == []
    assert outside(ax) == []


@pytest.mark.parametrize("name", DRAWN)
def test_hostile_names_are_drawn_as_text(name: str, tmp_path: Any) -> None:
    sweep = hostile_sweep()
    ax = DRAWN[name](sweep.rows, sweep.axes)
    save(page_of(ax), tmp_path / "picture.svg")
    assert "\u202e" not in (tmp_path / "picture.svg").read_text("utf-8")


# ---------------------------------------------------------------- grids


def test_every_cell_says_its_figure_and_layout() -> None:
    ax = plot_heat_map(ROWS, AXES)
    said = {text.replace("\n", " ") for text in texts(ax)}
    for row in ROWS:
        if row["status"] == "optimal":
            assert f"{100 * row['mfu']:.1f} % {row['layout']}" in said
    assert "nothing fits" in said
    assert any(text == "failed fp8 needs Hopper" for text in said)
    assert ax.get_title(loc="left") == "Best MFU: 55.0 %, at 8 accelerators, sequence length 4,096"


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("/a/s.yaml:4:30: axes.training.precision.1: fp8 needs fp8 matmuls, which a100 has not; "
         "allowed: bf16", "fp8 needs fp8 matmuls"),
        ("no layout fits; tp8 exceeds by 3.1 GB", "no layout fits"),
        ("KeyError: x", "KeyError"),
        (None, ""),
    ],
)  # fmt: skip
def test_reasons_are_told_without_their_place(reason: str | None, said: str) -> None:
    row = {"status": "failed", "reason": reason}
    assert text_without_plan(row) == f"failed\n{said}".rstrip()
    assert reason_of(row) in (reason or "")


def test_cells_stand_at_their_values() -> None:
    grid = grid_of(ROWS, AXES)
    assert (grid.x, grid.y) == AXES
    for (i, j), row in grid.cells.items():
        assert grid.columns[i] == row["num_accelerators"]
        assert grid.rows[j] == row["training.sequence_length"]
    assert len(grid.cells) == len(ROWS)


def test_other_axes_are_held_and_told() -> None:
    rows = [row | {"training.precision": p} for p in ("bf16", "fp8") for row in ROWS]
    axes = (*AXES, "training.precision")
    kept, values = at_fixed_values(rows, axes, AXES)
    assert values == {"training.precision": "bf16"}
    assert len(kept) == len(ROWS)
    assert "precision bf16" in plot_heat_map(rows, axes).get_xlabel()


def test_axes_that_change_together_are_one() -> None:
    """Zipped axes: nothing is held, the grid is whole, and a change of both is one change."""
    rows = [row | {"training.batch": 2**22 // row[AXES[1]]} for row in made_rows()]
    axes = (*AXES, "training.batch")
    assert varying(rows, axes) == list(AXES)
    assert at_fixed_values(rows, axes, AXES) == (rows, {})
    ax = plot_heat_map(rows, axes)
    assert len(ax.patches) == 15
    assert ax.get_ylabel() == "Sequence length, batch"
    base = base_of(rows, axes)
    assert base is not None
    assert set(changes_from(base, rows, axes)) == set(AXES)
    assert len(plot_scaling(rows, axes).lines) == 3


def test_weak_scaling_is_one_curve() -> None:
    rows = [made_row(i, 8 * 2**i, 4096) | {"batch": 64 * 2**i} for i in range(4)]
    ax = plot_scaling(rows, ("batch", "num_accelerators"))
    assert list(ax.lines[0].get_xdata()) == [8, 16, 32, 64]


def test_degrees_that_win_are_counted() -> None:
    ax = plot_layout_map(ROWS, AXES)
    assert ax.get_title(loc="left") == "2 sets of degrees win; tp8 at 7 of 15 points"
    assert texts(ax).count("tp8 pp2") == 6


@pytest.mark.slow
def test_many_cells_are_coloured_without_text() -> None:
    rows = [
        made_row(i, 8 * n, 512 * m)
        for i, (n, m) in enumerate(itertools.product(range(1, 33), range(1, 33)))
    ]
    ax = plot_heat_map(rows, AXES)
    assert texts(ax) == []
    assert len(ax.patches) == 1024
    assert len(page_of(ax).axes) == 2  # the colour bar says what the colours are
    wide = [row | {"layout.cp": 16, "layout.ep": 128} for row in rows]
    legend = plot_layout_map(wide, AXES).get_legend()
    assert [text.get_text() for text in legend.get_texts()] == [
        "tp8 cp16 ep128 pp2", "tp8 cp16 ep128",
    ]  # fmt: skip


# ---------------------------------------------------------------- curves


def test_scaling_tells_the_efficiency_that_is_left() -> None:
    ax = plot_scaling([made_row(i, 8 * 2**i, 8192) for i in range(5)], ("num_accelerators",))
    assert ax.get_title(loc="left") == (
        "Most efficient at 8 accelerators; 128 reach 85 % of that"  # 0.96⁴
    )
    line = ax.lines[0]
    assert list(line.get_xdata()) == [8, 16, 32, 64, 128]
    assert line.get_ydata() == pytest.approx([1000 * 0.96**i for i in range(5)])
    assert [text.split("\n")[0] for text in texts(ax)] == ["100 %", "96 %", "92 %", "88 %", "85 %"]


def test_the_fastest_of_several_rows_is_on_the_curve() -> None:
    rows = [made_row(0, 8, 8192), made_row(1, 16, 8192), made_row(2, 16, 16384)]
    ax = plot_scaling(rows, ("num_accelerators",))
    assert ax.lines[0].get_ydata() == pytest.approx([1000, 960])


def test_front_is_what_nothing_beats() -> None:
    points = [(1, 9), (2, 5), (2, 6), (3, 5), (4, 1), (5, 2), (1, 9)]
    front = front_of(points)
    assert [points[i] for i in front] == [(1, 9), (2, 5), (4, 1)]
    for i, (x, y) in enumerate(points):
        beaten = any(a <= x and b <= y and (a, b) != (x, y) for a, b in points)
        assert beaten == ((x, y) not in [points[j] for j in front]), i


def test_pareto_names_what_it_draws() -> None:
    ax = plot_pareto(ROWS)
    assert (
        ax.get_title(loc="left") == "5 of 13 plans are on the Pareto front of time and accelerators"
    )
    assert len(texts(ax)) == 5
    assert any("128: tp8 pp2 dp8" in text for text in texts(ax))


def test_a_change_of_one_axis_is_measured_against_the_base() -> None:
    rows = [
        made_row(i, n, k)
        for i, (n, k) in enumerate([(8, 8192), (16, 8192), (8, 16384), (16, 4096)])
    ]
    found = changes_from(rows[0], rows, AXES)
    assert {key: [change for change, _ in changes] for key, changes in found.items()} == {
        "training.sequence_length": [pytest.approx(-0.5)],
        "num_accelerators": [pytest.approx(-0.04)],
    }
    assert list(found) == ["training.sequence_length", "num_accelerators"]
    ax = plot_tornado(rows, AXES, rows[0])
    assert ax.get_title(loc="left") == (
        "Sequence length: 50 % between its values, the most of 2 axes"
    )
    assert texts(ax) == ["16,384: -50 %", "16: -4 %"]


def test_the_base_has_most_neighbours() -> None:
    rows = [
        made_row(i, n, k)
        for i, (n, k) in enumerate([(8, 4096), (16, 4096), (8, 8192), (64, 16384)])
    ]
    assert base_of(rows, AXES) is rows[0]
    assert base_of([], AXES) is None


# ---------------------------------------------------------------- which


@pytest.mark.parametrize(
    ("rows", "axes", "names"),
    [
        (ROWS, AXES, ["heat-map", "layout-map", "scaling", "pareto-accelerators", "pareto-cost",
                      "tornado"]),
        (ROWS[3:5], AXES, ["heat-map", "tornado"]),
        (ROWS[2:3], AXES, []),
        ([], AXES, []),
        (ROWS[:1], AXES, []),
    ],
)  # fmt: skip
def test_only_pictures_that_the_rows_allow(rows: Any, axes: Any, names: list[str]) -> None:
    assert [picture.name for picture in sweep_pictures(rows, axes)] == names


def test_values_are_ordered_and_shortened() -> None:
    rows = [{"a": 10, "b": "x"}, {"a": 9.0, "b": None}, {"a": 10.0, "b": [1, 2]}]
    assert values_of(rows, "a") == [9.0, 10]
    assert values_of(rows, "b") == ["x", None, [1, 2]]
    assert varying(rows, ["a", "b"]) == ["b", "a"]
    assert [value_text(v) for v in (1024, 0.5, True, None, [1, "a"])] == [
        "1,024",
        "0.5",
        "yes",
        "none",
        "1, a",
    ]
    assert len(value_text(HOSTILE[3])) == 28
