"""A picture of a pipeline's beginning and end: what every rank runs when."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from statistics import mean
from typing import TYPE_CHECKING

from planner.layouts.keys import SCHEDULE_WORDS
from planner.layouts.timeline import Span, Timeline
from planner.report.plots.drawing import (
    BLUE,
    GREEN,
    GREY,
    LABEL,
    ORANGE,
    PALE,
    SMALL,
    VERMILION,
    axes_of,
    inches,
    title,
)
from planner.report.plots.labels import text_inches
from planner.report.text.numbers import percent, seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PASSES = {
    "forward": (BLUE, "forward"),
    "backward": (VERMILION, "backward"),
    "input": (ORANGE, "gradients of inputs"),
    "weight": (GREEN, "gradients of weights"),
}
"""Colour and words of each kind of pass."""

LIGHT = {BLUE: "#9CC9E5", VERMILION: "#F0B493", ORANGE: "#F7DB9C", GREEN: "#96D6C1"}
"""Of each colour, that of passes of the other direction, or of a rank's further chunks."""

SHOWN_SLOTS = 2.5
"""Slots of steady state shown after the beginning and before the end."""

WIDTH, ROW, TALLEST = 10.0, 0.27, 9.0
LEFT, RIGHT, TOP, BOTTOM = 0.55, 0.15, 0.35, 0.6
"""Inches: the page, a rank's row, the most for all rows; margins."""


@dataclass(frozen=True, slots=True)
class Cut:
    """What is shown: until `left` and from `right` on, which is drawn `moved` seconds earlier.

    missing: micro-batches of the step that the timeline leaves out, all of them in what is cut.
    """

    left: float
    right: float
    gap: float
    missing: int

    @property
    def moved(self) -> float:
        return self.right - self.left - self.gap


def plot_timeline(
    timeline: Timeline, ax: Axes | None = None, num_microbatches: int | None = None
) -> Axes:
    """A row per rank, a box per pass with its micro-batch's number; steady state is cut out.

    Of two passes that run at the same time the forward pass is the upper half. num_microbatches:
    those of the step, where the timeline has fewer.
    """
    pipeline = timeline.pipeline
    rows = min(ROW * max(pipeline.pp, 3), TALLEST)
    height = TOP + rows + BOTTOM
    box = (LEFT / WIDTH, BOTTOM / height, 1 - (LEFT + RIGHT) / WIDTH, rows / height)
    ax = axes_of(ax, WIDTH, height, box)
    cut = _cut(timeline, (num_microbatches or pipeline.num_microbatches))
    ax.set_xlim(0.0, timeline.seconds - cut.moved)
    ax.set_ylim(pipeline.pp - 0.5, -0.5)
    for rank in range(len(timeline.ranks)):
        _draw_rank(timeline, rank, cut, ax)
    _label_axes(ax, timeline, cut)
    _legend(ax, timeline)
    title(ax, _title(timeline, cut))
    return ax


def _draw_rank(timeline: Timeline, rank: int, cut: Cut, ax: Axes) -> None:
    """The boxes of a rank, those of one colour and height together."""
    spans = timeline.ranks[rank]
    # passes that start together run beside each other, as in DualPipe
    paired = {a.start for a, b in pairwise(spans) if a.start == b.start}
    by_look: dict[tuple[str, bool], list[tuple[float, float, str]]] = defaultdict(list)
    for span in spans:
        colour = _colour(timeline, span)
        for start, end, late in _pieces(span, cut):
            number = str(_number(timeline, span, cut.missing, late))
            by_look[colour, span.start in paired].append((start, end, number))
    for (colour, is_half), boxes in by_look.items():
        bottom, height = rank - 0.44, 0.88
        if is_half:
            is_upper = colour in (BLUE, LIGHT[BLUE])
            bottom, height = (bottom if is_upper else rank), 0.44
        _boxes(ax, colour, (bottom, height), boxes)


def _cut(timeline: Timeline, num_microbatches: int) -> Cut:
    """The beginning until passes have come back to the first rank, and the end from its last
    forward pass on, each with some steady state; everything where little would be cut."""
    total, first = timeline.seconds, timeline.ranks[0]
    passed_back = [s for s in first if s.operation.kind in ("backward", "input")]
    left = min(s.end for s in passed_back if s.operation.chunk == 0) + SHOWN_SLOTS * _slot(timeline)
    last = max(s.start for s in first if s.operation.kind == "forward")
    right = last - SHOWN_SLOTS * _slot(timeline)
    missing = num_microbatches - timeline.pipeline.num_microbatches
    if not missing and right - left < SHOWN_SLOTS * _slot(timeline):
        return Cut(total, total, 0.0, 0)
    right = max(right, left)
    return Cut(left, right, 0.03 * (left + total - right), missing)


def _slot(timeline: Timeline) -> float:
    """Seconds a micro-batch takes on the busiest rank."""
    return (timeline.seconds - min(timeline.idle_seconds)) / timeline.pipeline.num_microbatches


def _pieces(span: Span, cut: Cut) -> Iterator[tuple[float, float, bool]]:
    """Start and end of what is shown of a pass, and whether it is after the cut."""
    if span.start < cut.left:
        yield span.start, min(span.end, cut.left), False
    if cut.gap and span.end > cut.right:
        yield max(span.start, cut.right) - cut.moved, span.end - cut.moved, True


def _is_light(timeline: Timeline, span: Span) -> bool:
    """Whether a pass is of dualpipe's other direction, or of a rank's further chunks."""
    pipeline = timeline.pipeline
    if pipeline.schedule == "dualpipe":
        return span.operation.microbatch >= pipeline.num_microbatches // 2
    return span.operation.chunk >= pipeline.pp


def _colour(timeline: Timeline, span: Span) -> str:
    colour, _ = PASSES[span.operation.kind]
    return LIGHT[colour] if _is_light(timeline, span) else colour


def _number(timeline: Timeline, span: Span, missing: int, late: bool) -> int:
    """The micro-batch's number in the step, counted from 1."""
    if timeline.pipeline.schedule == "dualpipe":
        return span.operation.microbatch + 1 + missing // 2 * (late + _is_light(timeline, span))
    return span.operation.microbatch + 1 + missing * late


def _boxes(
    ax: Axes, colour: str, row: tuple[float, float], boxes: list[tuple[float, float, str]]
) -> None:
    """Boxes (start, end, number) of one colour on a row (bottom, height), with numbers where they
    fit."""
    bottom, height = row
    ax.broken_barh(
        [(start, end - start) for start, end, _ in boxes], row, facecolor=colour,
        edgecolor="white", linewidth=0.4,
    )  # fmt: skip
    width_inches, height_inches = inches(ax)
    (_, right), (low, top) = ax.get_xlim(), ax.get_ylim()
    size = min(SMALL, 0.85 * 72 * height * height_inches / abs(low - top))
    for start, end, number in boxes:
        if size >= 4.5 and text_inches(number, size) < 0.97 * (end - start) * width_inches / right:
            ax.text(
                (start + end) / 2, bottom + height / 2, number, fontsize=size, ha="center",
                va="center_baseline", color="white" if colour == BLUE else "black",
            )  # fmt: skip


# ---------------------------------------------------------------- words around it


def _left_out_seconds(timeline: Timeline, cut: Cut) -> float:
    """Steady state repeats: the micro-batches left out take as long as those of the timeline."""
    return cut.missing * _slot(timeline)


def _label_axes(ax: Axes, timeline: Timeline, cut: Cut) -> None:
    """Seconds at the beginning, at both sides of the cut and at the end; numbers of the ranks."""
    left_out = _left_out_seconds(timeline, cut)
    ticks = [(0.0, 0.0), (ax.get_xlim()[1], timeline.seconds + left_out)]
    if cut.gap:
        after = cut.left + cut.gap
        ticks[1:1] = [(cut.left, cut.left), (after, cut.right + left_out)]
        for x in (cut.left, after):
            ax.axvline(x, color=GREY, linewidth=0.8, linestyle=(0, (2, 2)))
    ax.set_xticks([x for x, _ in ticks], [seconds(t, 3) if t else "0" for _, t in ticks])
    labels = ax.get_xticklabels()
    # so that those at both sides of the cut do not overlap and the outer ones stay on the page
    for label in labels[::2] if cut.gap else labels[:1]:
        label.set_horizontalalignment("left")
    for label in labels[1::2] if cut.gap else labels[1:]:
        label.set_horizontalalignment("right")
    pp = timeline.pipeline.pp
    # at most 32 numbers fit beside the rows
    every = -(-pp // 32)
    ax.set_yticks(range(0, pp, every), [str(rank) for rank in range(0, pp, every)])
    ax.set_ylabel("Rank", fontsize=LABEL)
    ax.grid(False)
    ax.tick_params(axis="y", length=0)


def _title(timeline: Timeline, cut: Cut) -> str:
    pipeline = timeline.pipeline
    schedule = SCHEDULE_WORDS[pipeline.schedule].partition(",")[0]
    chunks = f" × {pipeline.vp} chunks" if pipeline.vp > 1 else ""
    total = timeline.seconds + _left_out_seconds(timeline, cut)
    idle = mean(timeline.idle_seconds) / total
    return (
        f"{schedule[0].upper()}{schedule[1:]}: {pipeline.pp} ranks{chunks}, "
        f"{pipeline.num_microbatches + cut.missing} micro-batches, {seconds(total, 3)}, of which "
        f"ranks are idle {percent(idle)}"
    )


def _legend(ax: Axes, timeline: Timeline) -> None:
    from matplotlib.patches import Patch

    kinds = {span.operation.kind for spans in timeline.ranks for span in spans}
    handles = [Patch(color=c, label=words) for kind, (c, words) in PASSES.items() if kind in kinds]
    if any(_is_light(timeline, span) for span in timeline.ranks[0]):
        is_dualpipe = timeline.pipeline.schedule == "dualpipe"
        lighter = "the other direction" if is_dualpipe else "a further chunk"
        handles.append(Patch(color=PALE, label=f"lighter: {lighter}"))
    ax.legend(
        handles=handles, loc="upper center", bbox_to_anchor=(0.5, -0.27 / inches(ax)[1]),
        ncols=len(handles), fontsize=SMALL, frameon=False,
    )  # fmt: skip
