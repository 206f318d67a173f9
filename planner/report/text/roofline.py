"""A roofline for the terminal: the roofs, the knees, and what is under them."""

from __future__ import annotations

from itertools import groupby

from rich.console import RenderableType
from rich.text import Text

from planner.advise.cluster_roofline import COLLECTIVES, Roofline
from planner.inputs.units import format_quantity
from planner.report.text.numbers import compact, from_ridge, gigabytes, or_absent, seconds
from planner.report.text.pieces import (
    BAD,
    FAINT,
    GOOD,
    STRONG,
    Phrases,
    Row,
    facts,
    note,
    printable,
    section,
    stacked,
    table,
)


def roofline_report(roofline: Roofline) -> RenderableType:
    """Compute roofs, bandwidth roofs with ridges, latency knees, operators, moves, groups."""
    return stacked(
        _head(roofline),
        _levels(roofline),
        _knees(roofline),
        _operators(roofline),
        _moves(roofline),
        _groups(roofline),
        _group_walls(roofline),
    )


def _head(roofline: Roofline) -> RenderableType:
    rising = sorted(roofline.peak_flops.items(), key=lambda item: item[1])
    peaks = [
        f"{' and '.join(name.upper() for name, _ in precisions)} {peak / 1e12:,.5g}"
        for peak, precisions in groupby(rising, key=lambda item: item[1])
    ]
    job = None
    plan = roofline.plan
    if plan is not None and plan.layout is not None:
        job = (
            f"{printable(plan.inputs['model']['name'])} on {plan.inputs['num_accelerators']:,}, "
            f"planned: {plan.layout.label()}, {seconds(plan.step_seconds or 0.0, 4)} a step"
        )
    title = f"Roofs of {printable(roofline.topology)}, {printable(roofline.accelerator)}"
    return stacked(
        Text(title, STRONG),
        facts(
            [
                ("job", job),
                ("tensor", f"{', '.join(peaks)} TFLOP/s dense"),
                ("vector", f"{roofline.vector_flops / 1e12:,.5g} TFLOP/s, for norms and the like"),
            ]
        ),
    )


def _levels(roofline: Roofline) -> RenderableType:
    # of precisions with the same peak, which have the same ridges, the first
    precisions = [
        next(names)[0] for _, names in groupby(roofline.peak_flops.items(), key=lambda p: p[1])
    ]
    columns = [
        ("level", "l"), ("GB/s", "r"), ("achieved", "r"),
        *((name.upper(), "r") for name in precisions), ("vector", "r"),
    ]  # fmt: skip
    rows: list[Row] = [
        (
            Text(printable(level.name), STRONG),
            f"{level.bytes_per_second / 1e9:,.4g}",
            f"{level.reached_bytes_per_second / 1e9:,.4g}",
            *(compact(level.ridges[name]) for name in (*precisions, "vector")),
        )
        for level in roofline.levels
    ]
    return section(
        "Roofs: bandwidth of one accelerator, one direction, and ridges in FLOP/B",
        table(columns, rows),
        note("Ridge: compute roof over bandwidth. Left of it the level limits compute."),
    )


def _knees(roofline: Roofline) -> RenderableType | None:
    columns = [("tier", "l"), ("members", "r"), *((name, "r") for name in COLLECTIVES.values())]
    rows: list[Row] = []
    for level in roofline.levels:
        if not level.messages:
            continue
        curves = [level.messages[collective] for collective in COLLECTIVES]
        sizes = [format_quantity(curve.knee_bytes, "B", 2) for curve in curves]
        starts = [note(seconds(curve.latency_seconds, 2)) for curve in curves]
        rows.append((Text(printable(level.name), STRONG), f"{curves[0].members:,}", *sizes))
        rows.append((note("  start-up"), "", *starts))
    if not rows:
        return None
    return section(
        "Latency: below these message sizes start-up takes longer than the transfer",
        table(columns, rows),
        note(
            "For a group in that tier only, with one member in each domain below. Reduce-scatter "
            "is as all-gather; sizes are of the full buffer."
        ),
    )


def _operators(roofline: Roofline) -> RenderableType:
    columns = [
        ("kernels", "l"), ("FLOP/B", "r"), ("from ridge", "r"), ("TFLOP/s", "r"), ("wall", "l"),
        ("unit", "l"),
    ]  # fmt: skip
    rows: list[Row] = [
        (
            Text(point.name, STRONG),
            compact(point.intensity),
            from_ridge(point.intensity / point.ridge),
            compact(point.attainable_flops / 1e12),
            _wall(point.wall),
            point.unit,
        )
        for point in roofline.operators
    ]
    title = f"Kernels on HBM's roof, {roofline.precision.upper()}: what they can attain"
    sizes = (f"{point.name}: {point.sizes}" for point in roofline.operators if point.sizes)
    return section(title, table(columns, rows), Phrases(sizes, FAINT, "; "))


def _moves(roofline: Roofline) -> RenderableType:
    columns = [("", "w"), ("FLOP/B", "r"), ("then", "r"), ("TFLOP/s", "r"), ("then", "r"),
               ("gain", "r")]  # fmt: skip
    rows: list[Row] = [
        (
            move.name,
            compact(move.intensity_before),
            compact(move.intensity_after),
            compact(move.attainable_before / 1e12),
            compact(move.attainable_after / 1e12),
            Text(f"{compact(move.gain)}×", GOOD),
        )
        for move in roofline.moves
    ]
    return section(
        "What moves them: fewer bytes to the right, a faster unit up", table(columns, rows)
    )


def _groups(roofline: Roofline) -> RenderableType | None:
    if not roofline.groups:
        return None
    columns = [
        ("group", "l"), ("tier", "l"), ("GB", "r"), ("FLOP/B", "r"), ("exposed", "r"),
        ("ridge", "r"), ("from ridge", "r"),
    ]  # fmt: skip
    rows: list[Row] = [
        (
            Text(point.name, STRONG),
            printable(point.tier),
            gigabytes(point.bytes),
            compact(point.intensity),
            or_absent(compact, point.exposed_intensity),
            compact(point.ridge),
            from_ridge(point.margin),
        )
        for point in roofline.groups
    ]
    return section(
        "Groups of the plan on their slowest tier, a step on one accelerator",
        table(columns, rows),
        note("Exposed: FLOPs per byte that computation does not hide."),
    )


def _group_walls(roofline: Roofline) -> RenderableType | None:
    if not roofline.groups:
        return None
    columns = [
        ("group", "l"), ("compute", "r"), ("bandwidth", "r"), ("latency", "r"), ("highest", "l"),
    ]  # fmt: skip
    rows: list[Row] = [
        (
            Text(point.name, STRONG),
            seconds(point.compute_seconds),
            seconds(point.bandwidth_seconds),
            seconds(point.latency_seconds),
            _wall(point.wall),
        )
        for point in roofline.groups
    ]
    return section(
        "Their three walls",
        table(columns, rows),
        note(
            "Compute at the peak; bandwidth and latency as achieved. The highest limits a group "
            "whose traffic is not hidden."
        ),
    )


def _wall(wall: str) -> Text:
    return Text(wall, GOOD if wall == "compute" else BAD)
