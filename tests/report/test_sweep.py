"""The summary of a sweep: what is best of what can be compared, and why points failed."""

from __future__ import annotations

from pathlib import Path

from planner.report.text.pieces import plain_text
from planner.report.text.sweep import MOST_ROWS, sweep_report
from planner.sweep import Sweep
from planner.sweep.rows import COLUMNS


def row(point, **cells):
    placed = {
        "status": "optimal", "model": "a", "step_seconds": 2.0, "mfu": 0.4, "layout": "tp2 dp4",
        "tokens_per_second_per_accelerator": 100.0 + point, "num_accelerators": 8,
    }  # fmt: skip
    return {**dict.fromkeys(COLUMNS), "point": point, **placed, **cells}


def failed(point, reason):
    return row(point, status="failed", layout=None, reason=reason)


def shown(rows, axes=("num_accelerators",), points=None):
    sweep = Sweep("made", Path("made"), list(axes), rows, points or len(rows))
    return plain_text(sweep_report(sweep), 100)


def best(text):
    lines = text.partition("layout\n")[2].splitlines()
    return [int(line.split()[0]) for line in lines if line[:7].strip().isdigit()]


def test_the_fastest_of_each_model_are_shown() -> None:
    rows = [row(point, model="ab"[point % 2]) for point in range(30)]
    text = shown(rows)
    assert best(text) == [28, 26, 24, 22, 20, 29, 27, 25, 23, 21]
    assert "for each model" in text and "and 20 more" in text


def test_the_cheapest_where_there_are_prices() -> None:
    text = shown([row(point, cost=50.0 - point) for point in range(MOST_ROWS)])
    assert "Best by cost" in text and best(text)[0] == MOST_ROWS - 1
    assert "cost, USD" in text


def test_reasons_are_counted() -> None:
    text = shown([row(0), failed(1, "x"), failed(2, "y\x1b[31m"), failed(3, "x")], points=9)
    assert "9 points: 1 optimal, 3 failed" in text
    assert "2 ×  x" in text and "\x1b" not in text
    assert "3 × " in shown([failed(n, f"r{n % 12}") for n in range(30)])
    assert "and 2 other reasons" in shown([failed(n, f"r{n % 12}") for n in range(30)])


def test_long_names_of_axes_stand_above() -> None:
    axes = ("topology.tiers.1.bandwidth", "topology.tiers.2.bandwidth")
    values = {axes[0]: {"value": "12.5 GB/s"}, axes[1]: [1, 2]}
    text = shown([row(0, **values)], axes)
    assert "axis 2  topology.tiers.2.bandwidth" in text
    assert '…alue": "12.5 GB/s"}' in text and "[1, 2]" in text


def test_nothing_finished() -> None:
    assert shown([], points=4) == "4 points: none finished\n"
