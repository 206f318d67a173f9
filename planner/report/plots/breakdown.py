"""Pictures of where a plan's time and memory go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from planner.planning.plan import Plan
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
    ink,
    title,
)
from planner.report.plots.labels import text_inches
from planner.report.text.numbers import SMALL_FRACTION, gigabytes, percent, seconds, terms_and_other

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, ROW, TOP, BOTTOM = 7.6, 0.26, 0.4, 0.75
"""Inches: the page, a row of the time's bars, margins."""

KINDS = (
    ("computes", BLUE, ("compute_gemm", "compute_attention", "compute_memory_bound", "loss")),
    ("computes again", SKY, ("recompute",)),
    ("communicates, not hidden", VERMILION, ("tp", "cp", "ep", "pp", "dp", "offload")),
)
"""What a term is, its colour and the terms; others wait or keep house."""

WAITS = ("waits and housekeeping", ORANGE)

MEMORY_LOOKS = {
    "parameters": (BLUE, ""), "gradients": (SKY, ""), "optimizer": (PURPLE, ""),
    "activations": (ORANGE, ""), "logits": (VERMILION, ""), "buffers": (GREEN, ""),
    "runtime": (GREY, ""), "allocator": (YELLOW, ""),
}  # fmt: skip
"""Colour and hatch of each term of memory."""

MOST_STAGES = 64


def plot_time(plan: Plan, ax: Axes | None = None) -> Axes:
    """A bar per term of the step, coloured by what it is; its seconds and share are written."""
    assert plan.time is not None and plan.step_seconds
    step = plan.step_seconds
    terms = terms_and_other(plan.time, step)
    height = TOP + ROW * len(terms) + BOTTOM
    box = (1.75 / WIDTH, BOTTOM / height, 1 - 1.95 / WIDTH, ROW * len(terms) / height)
    ax = axes_of(ax, WIDTH, height, box)
    looks = [_look(name) for name in terms]
    for row, ((words, colour), value) in enumerate(zip(looks, terms.values(), strict=True)):
        known = words in {text for text, _ in looks[:row]}
        ax.barh(row, value, height=0.7, color=colour, label=None if known else words)
        ax.annotate(
            f"{seconds(value)} · {percent(value / step)}", (value, row), xytext=(4, 0),
            textcoords="offset points", va="center", fontsize=SMALL,
        )  # fmt: skip
    ax.set_xlim(0, 1.22 * max(terms.values()))
    ax.set_ylim(len(terms) - 0.45, -0.55)
    ax.set_yticks(range(len(terms)), [name.replace("_", " ") for name in terms], fontsize=LABEL)
    ax.tick_params(axis="y", length=0)
    ax.grid(False, axis="y")
    ax.set_xlabel("Seconds of a step, on the slowest stage's rank", fontsize=LABEL)
    ax.legend(loc="lower right", fontsize=SMALL, framealpha=1, edgecolor=PALE)
    title(ax, _time_finding(plan.time, step), x=-1.65 / inches(ax)[0])  # over the names too
    return ax


def _look(term: str) -> tuple[str, str]:
    return next(((words, colour) for words, colour, terms in KINDS if term in terms), WAITS)


def _time_finding(time: Mapping[str, float], step: float) -> str:
    shares: dict[str, float] = {}
    for name, value in time.items():
        words, _ = _look(name)
        shares[words] = shares.get(words, 0.0) + value / step
    works, again, moves = (shares.get(words, 0.0) for words, *_ in KINDS)
    more = f", {percent(again, 0)} computes again" if again >= SMALL_FRACTION else ""
    return (
        f"{percent(works, 0)} of a step of {seconds(step, 4)} computes{more}, "
        f"{percent(moves, 0)} waits for communication"
    )


def plot_memory(plan: Plan, ax: Axes | None = None) -> Axes:
    """A stacked bar per pipeline stage under the accelerator's capacity, in GB.

    Of more than MOST_STAGES stages, the first and last ones and the fullest.
    """
    memory = plan.memory
    assert memory is not None
    known = [term for term in memory.terms if all(term in stage for stage in memory.by_stage)]
    stages = list(memory.by_stage) if known else [{**memory.terms, "stage": memory.worst_stage}]
    if len(stages) > MOST_STAGES:
        half = MOST_STAGES // 2
        stages = [
            s for i, s in enumerate(stages)
            if i < half or i >= len(stages) - half or s["stage"] == memory.worst_stage
        ]  # fmt: skip
    width = min(max(3.4 + 0.5 * len(stages), 4.4), WIDTH)
    ax = axes_of(ax, width, 3.8, (0.6 / width, 0.13, 1 - 1.85 / width, 0.77))
    terms = [term for term in memory.terms if any(stage.get(term, 0) > 0 for stage in stages)]
    places, bottoms = range(len(stages)), [0.0] * len(stages)
    for term in terms:
        heights = [stage.get(term, 0.0) / 1e9 for stage in stages]
        colour, hatch = MEMORY_LOOKS.get(term, (PALE, "//"))
        ax.bar(
            places, heights, bottom=bottoms, width=0.78, color=colour, hatch=hatch, label=term,
            edgecolor="white", linewidth=0.5,
        )  # fmt: skip
        bottoms = [below + height for below, height in zip(bottoms, heights, strict=True)]
    capacity = memory.capacity_bytes / 1e9
    ax.axhline(capacity, color=BLACK, linewidth=1.2, linestyle=(0, (5, 2)))
    ax.set_xlim(-0.6, len(stages) - 0.4)
    high = max(capacity, *bottoms, (memory.peak_high_bytes or 0.0) / 1e9)
    ax.set_ylim(0, 1.12 * high)
    ax.annotate(
        f"capacity {capacity:.1f} GB", (len(stages) - 0.4, capacity), xytext=(-2, 3),
        textcoords="offset points", ha="right", fontsize=SMALL,
    )  # fmt: skip
    _error_bar(plan, [stage["stage"] for stage in stages], ax)
    _write_sizes(plan, stages, terms, ax)
    every = -(-len(stages) // 32)
    ax.set_xticks(list(places)[::every], [f"{s['stage']:g}" for s in stages[::every]])
    ax.grid(False, axis="x")
    ax.set_xlabel("Pipeline stage" if len(stages) > 1 else "Every rank", fontsize=LABEL)
    ax.set_ylabel("GB on one accelerator", fontsize=LABEL)
    handles, labels = ax.get_legend_handles_labels()
    ax.legend(
        handles[::-1], labels[::-1], loc="upper left", bbox_to_anchor=(1.01, 1.0), fontsize=SMALL,
        frameon=False,
    )  # fmt: skip
    verdict = {"no": "does not fit"}.get(memory.verdict, memory.verdict)
    where = f"Stage {memory.worst_stage}" if len(memory.by_stage) > 1 else "Each rank"
    title(
        ax, f"{where} holds {gigabytes(memory.peak_bytes)} of {capacity:.1f} GB: {verdict}"
    )  # fmt: skip
    return ax


def _error_bar(plan: Plan, stages: list[float], ax: Axes) -> None:
    """The bar of the fullest stage's peak, right of its middle so that figures stay readable."""
    memory = plan.memory
    assert memory is not None
    if memory.peak_low_bytes is None or memory.peak_high_bytes is None:
        return
    low, high = memory.peak_low_bytes / 1e9, memory.peak_high_bytes / 1e9
    peak = memory.peak_bytes / 1e9
    ax.errorbar(
        [stages.index(memory.worst_stage) + 0.3], [peak],
        [[max(peak - low, 0)], [max(high - peak, 0)]], color=BLACK, capsize=3, linewidth=1.1,
        label=f"{percent(plan.interval_coverage or 0, 0)} of runs",
    )  # fmt: skip


def _write_sizes(
    plan: Plan, stages: Sequence[Mapping[str, float]], terms: Sequence[str], ax: Axes
) -> None:
    """Peaks over the bars, and sizes in what is tall enough, as far as bars are wide enough."""
    width, height = inches(ax)
    (left, right), (_, top) = ax.get_xlim(), ax.get_ylim()
    if text_inches("88.8", SMALL) > 0.9 * width / (right - left):
        return
    memory = plan.memory
    assert memory is not None
    for x, stage in enumerate(stages):
        bottom = 0.0
        for term in terms:
            size = stage.get(term, 0.0) / 1e9
            colour, _ = MEMORY_LOOKS.get(term, (PALE, ""))
            if size * height / top > 1.3 * SMALL / 72:
                ax.annotate(
                    f"{size:.1f}", (x, bottom + size / 2), ha="center", va="center",
                    fontsize=SMALL, color=ink(colour),
                )  # fmt: skip
            bottom += size
        worst = stage.get("stage") == memory.worst_stage
        # the fullest stage's stands above its error bar
        over = max(bottom, (memory.peak_high_bytes or 0.0) / 1e9) if worst else bottom
        ax.annotate(
            f"{bottom:.1f}", (x, over), xytext=(0, 2), textcoords="offset points", ha="center",
            fontsize=SMALL, fontweight="bold", path_effects=halo(),
        )  # fmt: skip
