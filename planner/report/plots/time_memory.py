"""Pictures of where a plan's time and memory go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from planner.planning.plan import MemoryReport, Plan
from planner.report.plots.drawing import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    LABEL,
    ORANGE,
    PALE,
    PURPLE,
    SKY,
    SMALL,
    VERMILION,
    YELLOW,
    axes_of,
    halo,
    inches,
    text_colour,
    title,
)
from planner.report.plots.labels import text_inches
from planner.report.text.numbers import gigabytes, percent, seconds
from planner.report.text.terms import (
    COMMUNICATION,
    SMALL_FRACTION,
    term_words,
    with_small_ones_summed,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, ROW, TOP, BOTTOM = 7.6, 0.26, 0.4, 0.75
"""Inches: the page, a row of the time's bars, margins."""

# ---------------------------------------------------------------- time


@dataclass(frozen=True, slots=True)
class Activity:
    """What a rank does in some terms of the step: its words, its colour, and the terms."""

    words: str
    colour: str
    terms: tuple[str, ...]


COMPUTE = Activity(
    "compute", BLUE, ("compute_gemm", "compute_attention", "compute_memory_bound", "loss")
)
RECOMPUTE = Activity("recompute", SKY, ("recompute",))
EXPOSED = Activity("exposed communication", VERMILION, (*COMMUNICATION, "offload"))
WAITING = Activity("waiting and overhead", ORANGE, ())
"""All other terms."""


def plot_time(plan: Plan, ax: Axes | None = None) -> Axes:
    """A bar per term of the step, coloured by activity, with its seconds and share."""
    assert plan.time is not None and plan.step_seconds
    step = plan.step_seconds
    terms = with_small_ones_summed(plan.time, step)
    height = TOP + ROW * len(terms) + BOTTOM
    box = (1.75 / WIDTH, BOTTOM / height, 1 - 1.95 / WIDTH, ROW * len(terms) / height)
    ax = axes_of(ax, WIDTH, height, box)
    in_legend: set[str] = set()
    for row, (term, value) in enumerate(terms.items()):
        activity = _activity(term)
        label = None if activity.words in in_legend else activity.words
        in_legend.add(activity.words)
        ax.barh(row, value, height=0.7, color=activity.colour, label=label)
        ax.annotate(
            f"{seconds(value)} · {percent(value / step)}", (value, row), xytext=(4, 0),
            textcoords="offset points", va="center", fontsize=SMALL,
        )  # fmt: skip
    # space for the figures right of the longest bar
    ax.set_xlim(0, 1.22 * max(terms.values()))
    ax.set_ylim(len(terms) - 0.45, -0.55)
    ax.set_yticks(range(len(terms)), [term_words(term) for term in terms], fontsize=LABEL)
    ax.tick_params(axis="y", length=0)
    ax.grid(False, axis="y")
    ax.set_xlabel("Seconds of a step, on a rank of the slowest stage", fontsize=LABEL)
    ax.legend(loc="lower right", fontsize=SMALL, framealpha=1, edgecolor=PALE)
    # the title begins over the names of the terms
    title(ax, _time_title(plan.time, step), x=-1.65 / inches(ax)[0])
    return ax


def _activity(term: str) -> Activity:
    activities = (COMPUTE, RECOMPUTE, EXPOSED)
    return next((activity for activity in activities if term in activity.terms), WAITING)


def _time_title(time: Mapping[str, float], step_seconds: float) -> str:
    def share(activity: Activity) -> float:
        return sum(v for term, v in time.items() if term in activity.terms) / step_seconds

    again = share(RECOMPUTE)
    recompute = f", {percent(again, 0)} recompute" if again >= SMALL_FRACTION else ""
    return (
        f"{percent(share(COMPUTE), 0)} of a step of {seconds(step_seconds, 4)} is compute"
        f"{recompute}, {percent(share(EXPOSED), 0)} exposed communication"
    )


# ---------------------------------------------------------------- memory

MEMORY_LOOKS = {
    "parameters": (BLUE, ""), "gradients": (SKY, ""), "optimizer": (PURPLE, ""),
    "activations": (ORANGE, ""), "logits": (VERMILION, ""), "buffers": (GREEN, ""),
    "runtime": (GREY, ""), "allocator": (YELLOW, ""),
}  # fmt: skip
"""Colour and hatch of each term of memory."""

MOST_STAGES = 64

INTERVAL_AT = 0.3
"""Where the interval is, right of the middle of its bar, in distances from bar to bar."""

Stage = Mapping[str, float]
"""Number of a pipeline stage, and its bytes by term."""


def plot_memory(plan: Plan, ax: Axes | None = None) -> Axes:
    """A stacked bar per pipeline stage under the accelerator's capacity, in GB.

    Of more than MOST_STAGES stages, the first and last ones and the fullest.
    """
    memory = plan.memory
    assert memory is not None
    stages = _shown_stages(memory)
    # as wide as the bars need, and not too narrow for the title
    width = min(max(3.4 + 0.5 * len(stages), 4.4), WIDTH)
    ax = axes_of(ax, width, 3.8, (0.6 / width, 0.13, 1 - 1.85 / width, 0.77))
    terms = [term for term in memory.terms if any(stage.get(term, 0) > 0 for stage in stages)]
    heights = _stack(stages, terms, ax)
    capacity = memory.capacity_bytes / 1e9
    ax.axhline(capacity, color=BLACK, linewidth=1.2, linestyle=(0, (5, 2)))
    ax.set_xlim(-0.6, len(stages) - 0.4)
    highest = max(capacity, *heights, (memory.peak_high_bytes or 0.0) / 1e9)
    # space for the figures over the highest bar
    ax.set_ylim(0, 1.12 * highest)
    ax.annotate(
        f"capacity {capacity:.1f} GB", (len(stages) - 0.4, capacity), xytext=(-2, 3),
        textcoords="offset points", ha="right", fontsize=SMALL,
    )  # fmt: skip
    _draw_interval(memory, plan.interval_coverage or 0.0, [stage["stage"] for stage in stages], ax)
    _write_sizes(memory, stages, terms, ax)
    # at most 32 numbers fit under the bars
    every = -(-len(stages) // 32)
    ax.set_xticks(list(range(len(stages)))[::every], [f"{s['stage']:g}" for s in stages[::every]])
    ax.grid(False, axis="x")
    ax.set_xlabel("Pipeline stage" if len(stages) > 1 else "Every rank", fontsize=LABEL)
    ax.set_ylabel("GB on one accelerator", fontsize=LABEL)
    handles, labels = ax.get_legend_handles_labels()
    ax.legend(  # in the order in which the terms are stacked
        handles[::-1], labels[::-1], loc="upper left", bbox_to_anchor=(1.01, 1.0), fontsize=SMALL,
        frameon=False,
    )  # fmt: skip
    verdict = {"no": "does not fit"}.get(memory.verdict, memory.verdict)
    where = f"Stage {memory.worst_stage}" if len(memory.by_stage) > 1 else "Each rank"
    title(ax, f"{where} holds {gigabytes(memory.peak_bytes)} of {capacity:.1f} GB: {verdict}")
    return ax


def _shown_stages(memory: MemoryReport) -> list[Stage]:
    """The stages to draw; only the worst one from a plan file that holds only the stages' sums."""
    known = [term for term in memory.terms if all(term in stage for stage in memory.by_stage)]
    if not known:
        return [{**memory.terms, "stage": memory.worst_stage}]
    stages = list(memory.by_stage)
    if len(stages) <= MOST_STAGES:
        return stages
    half = MOST_STAGES // 2
    return [
        stage for i, stage in enumerate(stages)
        if i < half or i >= len(stages) - half or stage["stage"] == memory.worst_stage
    ]  # fmt: skip


def _stack(stages: Sequence[Stage], terms: Sequence[str], ax: Axes) -> list[float]:
    """Draw the terms of each stage on top of each other; return how high each stage is, in GB."""
    bottoms = [0.0] * len(stages)
    for term in terms:
        heights = [stage.get(term, 0.0) / 1e9 for stage in stages]
        colour, hatch = MEMORY_LOOKS.get(term, (PALE, "//"))
        ax.bar(
            range(len(stages)), heights, bottom=bottoms, width=0.78, color=colour, hatch=hatch,
            label=term, edgecolor="white", linewidth=0.5,
        )  # fmt: skip
        bottoms = [below + height for below, height in zip(bottoms, heights, strict=True)]
    return bottoms


def _draw_interval(
    memory: MemoryReport, coverage: float, stages: Sequence[float], ax: Axes
) -> None:
    """The prediction interval of the fullest stage's peak, right of the middle of its bar so that
    figures stay readable."""
    if memory.peak_low_bytes is None or memory.peak_high_bytes is None:
        return
    low, high = memory.peak_low_bytes / 1e9, memory.peak_high_bytes / 1e9
    peak = memory.peak_bytes / 1e9
    ax.errorbar(
        [stages.index(memory.worst_stage) + INTERVAL_AT], [peak],
        [[max(peak - low, 0)], [max(high - peak, 0)]], color=BLACK, capsize=3, linewidth=1.1,
        label=f"{percent(coverage, 0)} interval",
    )  # fmt: skip


def _write_sizes(
    memory: MemoryReport, stages: Sequence[Stage], terms: Sequence[str], ax: Axes
) -> None:
    """Write peaks over the bars, and sizes in what is tall enough, if bars are wide enough."""
    width, height = inches(ax)
    (left, right), (_, highest) = ax.get_xlim(), ax.get_ylim()
    unit = width / (right - left)  # inches from bar to bar
    if text_inches("88.8", SMALL) > 0.9 * unit:
        return
    # whether a figure in the middle of a bar and its interval are apart; else it goes above
    beside_interval = text_inches("88.8", SMALL) / 2 + 0.05 < INTERVAL_AT * unit
    for x, stage in enumerate(stages):
        bottom = 0.0
        for term in terms:
            size = stage.get(term, 0.0) / 1e9
            colour, _ = MEMORY_LOOKS.get(term, (PALE, ""))
            if size * height / highest > 1.3 * SMALL / 72:
                ax.annotate(
                    f"{size:.1f}", (x, bottom + size / 2), ha="center", va="center",
                    fontsize=SMALL, color=text_colour(colour),
                )  # fmt: skip
            bottom += size
        top = bottom
        if stage.get("stage") == memory.worst_stage and not beside_interval:
            top = max(bottom, (memory.peak_high_bytes or 0.0) / 1e9)
        ax.annotate(
            f"{bottom:.1f}", (x, top), xytext=(0, 2), textcoords="offset points", ha="center",
            fontsize=SMALL, fontweight="bold", path_effects=halo(),
        )  # fmt: skip
