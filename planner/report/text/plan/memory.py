"""Memory of a plan: the fullest stage term by term, and every stage of a pipeline in a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

from rich.console import RenderableType
from rich.text import Text

from planner.planning.plan import MemoryReport
from planner.report.text.numbers import gigabytes, percent
from planner.report.text.pieces import (
    FAINT,
    STRONG,
    VERDICT_STYLES,
    Bar,
    Phrases,
    Row,
    section,
    table,
)

MEMORY_OF = "Memory of"
"""How the title of the table of terms begins."""

ROWS_AT_ENDS = 3
"""How many rows of a long pipeline's table are shown at either end."""

HEADS = {
    "parameters": "params", "gradients": "grads", "optimizer": "optim", "activations": "acts",
    "logits": "logits", "buffers": "bufs", "runtime": "runtime", "allocator": "alloc",
}  # fmt: skip
"""Term → the head of its column."""


def excess(over_bytes: float) -> str:
    """By how much a layout exceeds the memory, or how little it leaves free."""
    if over_bytes > 0:
        return f"{gigabytes(over_bytes)} GB over the limit"
    return f"fragile, {gigabytes(-over_bytes)} GB free"


def fullest_stage_name(stage: int | None) -> str:
    """Where the fullest rank of a layout that does not fit is; None: not the first or the last."""
    return "a middle stage" if stage is None else f"stage {stage}"


def fullest_stage(memory: MemoryReport | None) -> RenderableType | None:
    """The terms of the fullest stage's rank, and their sum against the capacity."""
    if memory is None:
        return None
    # bars are drawn over the larger of both, so that none is cut
    longest = max(memory.capacity_bytes, memory.peak_bytes)

    def row(name: str | Text, value: float, bar: Bar) -> Row:
        return name, f"{gigabytes(value)} GB", percent(value / memory.capacity_bytes), bar

    rows = [
        row(term, value, Bar(value / longest)) for term, value in memory.terms.items() if value > 0
    ]
    peak = Bar(memory.peak_bytes / longest, VERDICT_STYLES[memory.verdict], track=True)
    rows.append(row(Text("peak", STRONG), memory.peak_bytes, peak))
    number = len(memory.by_stage)
    where = f"stage {memory.worst_stage} (of 0 to {number - 1}), the fullest"
    where = where if number > 1 else "each rank"
    title = f"{MEMORY_OF} {where} (share of {gigabytes(memory.capacity_bytes)} GB)"
    return section(title, table([("", "l"), ("", "r"), ("", "r"), ("", "b")], rows))


def stages(memory: MemoryReport | None) -> RenderableType | None:
    """A row per stage with the terms in which stages differ; equal stages share a row.

    Nothing without a pipeline, or from a plan file that holds only the stages' sums.
    """
    if memory is None:
        return None
    known = [term for term in memory.terms if all(term in stage for stage in memory.by_stage)]
    if len(memory.by_stage) < 2 or not known:
        return None
    # compared as they are written: a difference that cannot be seen is none
    sizes = {term: [gigabytes(stage[term]) for stage in memory.by_stage] for term in known}
    differing = [term for term in known if len(set(sizes[term])) > 1]
    equal = [term for term in known if term not in differing and memory.terms[term] > 0]
    columns = [("stage", "l"), ("layers", "r")]
    columns += [(HEADS.get(term, term), "r") for term in differing] + [("peak", "r")]
    phrases = [f"{term} {sizes[term][0]}" for term in equal]
    return section(
        "Memory of every stage, GB",
        table(columns, _rows(memory, differing)),
        Phrases([f"equal on all: {phrases[0]}", *phrases[1:]], FAINT) if phrases else None,
    )


def _rows(memory: MemoryReport, terms: Sequence[str]) -> list[Row]:
    """Runs of stages that look the same; of many, those at the ends and the fullest."""

    def cells(stage: Mapping[str, float]) -> tuple[str, ...]:
        sizes = (gigabytes(stage[term]) for term in (*terms, "peak_bytes"))
        return (f"{stage['layers']:g}", *sizes)

    runs = [(key, list(members)) for key, members in groupby(memory.by_stage, cells)]
    fullest = [memory.by_stage[memory.worst_stage] in members for _, members in runs]
    rows: list[Row] = []
    for number, (key, members) in enumerate(runs):
        at_an_end = min(number, len(runs) - 1 - number) < ROWS_AT_ENDS
        if at_an_end or fullest[number] or len(runs) <= 2 * ROWS_AT_ENDS + 1:
            first, last = members[0]["stage"], members[-1]["stage"]
            name = f"{first:g}" if first == last else f"{first:g} to {last:g}"
            rows.append((Text(name, STRONG if fullest[number] else ""), *key))
        elif rows[-1][0] != "…":
            rows.append(("…", *("" for _ in key)))
    return rows
