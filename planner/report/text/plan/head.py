"""The first lines of a plan's report: what was planned, and Layout, Step, MFU, Memory, Run."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Group, RenderableType
from rich.text import Text

from planner.planning.plan import MemoryReport, Plan
from planner.problem.scenario import Scenario
from planner.problem.training import Training
from planner.report.text.layouts import layout_facts
from planner.report.text.numbers import gigabytes, in_words, percent, seconds
from planner.report.text.pieces import (
    FAINT,
    STRONG,
    VERDICT_STYLES,
    Fact,
    Phrases,
    facts,
    printable,
)

NOT_COUNTED = "excluding masked attention and recompute"
"""What `planner.cost.flops` leaves out of the FLOPs of MFU; other programs count otherwise."""


def subject(plan: Plan, scenario: Scenario) -> RenderableType:
    """Model, cluster and batch, the software and what it computes attention by."""
    training, model = scenario.training, scenario.model
    size = f"{in_words(model.num_parameters)} parameters"
    if model.moe is not None:
        size += f", {in_words(model.num_active_parameters)} active"
    documents = training.mean_document_length
    return Group(
        title(scenario),
        Phrases(
            (
                size,
                f"{sequences(training)} × {training.sequence_length:,} tokens a step",
                None if documents is None else f"documents of {documents:,} tokens",
                training.precision,
                printable(scenario.software.name),
                None if plan.attention is None else f"attention by {plan.attention}",
            ),
            FAINT,
        ),
        Text(""),
    )


def title(scenario: Scenario) -> Text:
    """'llama3-8b on 8 × h100-sxm-80gb (dgx-h100)'."""
    topology = scenario.topology
    return Text(
        f"{printable(scenario.model.name)} on {scenario.num_accelerators:,} × "
        f"{printable(topology.accelerator.name)} ({printable(topology.name)})",
        STRONG,
    )


def sequences(training: Training) -> str:
    """Sequences of a step: '1,024', or '2,592 to 3,168' where the batch is to be chosen."""
    fewest, most = training.batch_range
    return f"{fewest:,}" if fewest == most else f"{fewest:,} to {most:,}"


def answer(plan: Plan, scenario: Scenario) -> RenderableType:
    """The lines Layout, Step, MFU, Memory and Run of a plan that has a layout."""
    assert plan.layout is not None
    rows: list[Fact] = [
        *layout_facts("Layout", plan.layout, strong=True),
        ("Step", _step(plan)),
        ("", interval_reason(plan)),
        ("MFU", _mfu(plan)),
        ("Memory", None if plan.memory is None else _memory(plan, plan.memory)),
        ("Run", _run(plan, scenario.training.total_tokens)),
    ]
    return facts(rows)


def _step(plan: Plan) -> RenderableType | None:
    if plan.step_seconds is None:
        return None
    text = Text(seconds(plan.step_seconds, 4), STRONG)
    text.append(_interval(plan, plan.step_seconds_low, plan.step_seconds_high, seconds), "not bold")
    if plan.tokens_per_second and plan.tokens_per_second_per_accelerator:
        text.append(
            f"; {in_words(plan.tokens_per_second)} tokens/s, "
            f"{in_words(plan.tokens_per_second_per_accelerator)} per accelerator",
            "not bold",
        )
    return text


def _interval(
    plan: Plan, low: float | None, high: float | None, form: Callable[[float], str]
) -> str:
    """' (80 % interval 6.66 to 8.32 s)', or nothing for a plan without intervals."""
    if plan.interval_coverage is None or low is None or high is None:
        return ""
    (first, unit), last = form(low).rsplit(maxsplit=1), form(high)
    if not last.endswith(f" {unit}"):  # else the unit is written once
        first = f"{first} {unit}"
    return f" ({percent(plan.interval_coverage, 0)} interval {first} to {last})"


def interval_reason(plan: Plan) -> RenderableType | None:
    """'model-parallel interval: a model cut by ...', or nothing for a plan without intervals."""
    if plan.interval_kind is None or plan.interval_reason is None:
        return None
    return Text(f"{plan.interval_kind} interval: {printable(plan.interval_reason)}", FAINT)


def step_with_interval(plan: Plan) -> str:
    """'12.91 s (80 % interval 12.5 to 13.8 s)'."""
    interval = _interval(plan, plan.step_seconds_low, plan.step_seconds_high, seconds)
    return seconds(plan.step_seconds or 0.0, 4) + interval


def mfu_of_peak(plan: Plan) -> str:
    """'52.8 % of 989.5 TFLOP/s dense BF16'; only the share where the peak is not known."""
    return f"{percent(plan.mfu or 0.0)}{_of_peak(plan)}"


def _of_peak(plan: Plan) -> str:
    if plan.mfu_denominator is None:
        return ""
    peak = plan.mfu_denominator.peak_flops / 1e12
    return f" of {peak:,.5g} TFLOP/s dense {_peak_precision(plan)}"


def _peak_precision(plan: Plan) -> str:
    return "BF16" if plan.mfu_denominator is None else plan.mfu_denominator.precision.upper()


def _mfu(plan: Plan) -> RenderableType | None:
    if plan.mfu is None:
        return None
    text = Text(percent(plan.mfu), STRONG)
    text.append(_of_peak(plan), "not bold")
    # for comparison with runs in BF16
    if plan.mfu_bf16 is not None and _peak_precision(plan) != "BF16":
        text.append(f", {percent(plan.mfu_bf16)} of dense BF16", "not bold")
    text.append(f", {NOT_COUNTED}", "not bold")
    if plan.hfu is not None:
        text.append(f"; HFU {percent(plan.hfu)}", "not bold")
    return text


def _memory(plan: Plan, memory: MemoryReport) -> RenderableType:
    text = Text(memory.verdict if memory.verdict != "no" else "does not fit")
    # the verdict in the colour of a traffic light
    text.stylize(f"bold {VERDICT_STYLES[memory.verdict]}")
    free = memory.capacity_bytes - memory.peak_bytes
    headroom = f"{_with_unit(free)} free" if free >= 0 else f"{_with_unit(-free)} over"
    text.append(
        f": {gigabytes(memory.peak_bytes)} of {_with_unit(memory.capacity_bytes)}, {headroom}"
        f"{_interval(plan, memory.peak_low_bytes, memory.peak_high_bytes, _with_unit)}",
        "not bold default",
    )
    if memory.host_bytes is not None and memory.host_capacity_bytes is not None:
        host = f"{gigabytes(memory.host_bytes)} of {_with_unit(memory.host_capacity_bytes)}"
        text.append(f"; {host} of pinned host memory", "not bold default")
    return text


def _with_unit(value: float) -> str:
    return f"{gigabytes(value)} GB"


def _run(plan: Plan, total_tokens: float | None) -> str | None:
    if plan.days is None or total_tokens is None:
        return None
    text = f"{in_words(total_tokens)} tokens: {_duration(plan.days)}"
    if plan.accelerator_hours is not None:
        text += f", {in_words(plan.accelerator_hours)} accelerator-hours"
    if plan.cost is not None:
        text += f", {in_words(plan.cost)} USD"
    return text


def _duration(days: float) -> str:
    return f"{days:,.1f} days" if days >= 2 else f"{24 * days:,.1f} hours"
