"""A plan as a report for the terminal, in the order of the questions people ask.

What is the answer, is it proven, where does each group live, where do time and memory go, what
limits each group, what else was close, and what to be careful about.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from planner.planning.plan import GroupLoss, MemoryReport, Plan
from planner.problem.scenario import Scenario, scenario_from_document
from planner.problem.training import Training
from planner.report.text import choice, groups, listing, memory
from planner.report.text.layouts import layout_in_words, layout_labels
from planner.report.text.nodes import nodes
from planner.report.text.numbers import (
    gigabytes,
    percent,
    seconds,
    signed_percent,
    signed_seconds,
    terms_and_other,
    words,
)
from planner.report.text.pieces import (
    FAINT,
    FAIR,
    STRONG,
    VERDICT_STYLES,
    Bar,
    Phrases,
    facts,
    printable,
    section,
    table,
)
from planner.report.text.proof import excluded, no_answer, proof

TOLD_TERMS = 3
"""How many of a runner-up's differing terms are named."""


def plan_report(plan: Plan) -> RenderableType:
    """The whole report of a plan, of an evaluated layout, or of why there is none."""
    scenario = scenario_from_document(plan.inputs, "plan")
    if plan.layout is None:
        parts = [_head(scenario), *no_answer(plan)]
    else:
        parts = [
            _head(scenario),
            _answer(plan, scenario),
            proof(plan, scenario.search.robust),
            choice.chosen(plan),
            groups.places(plan, scenario),
            nodes(plan),
            _time(plan),
            *_memory(plan),
            groups.traffic(plan),
            groups.swaps(plan),
            _runners_up(plan),
            excluded(plan.search),
        ]
    return Group(*(part for part in (*parts, _warnings(plan.warnings)) if part is not None))


# ---------------------------------------------------------------- head and answer


def _head(scenario: Scenario) -> RenderableType:
    training, topology = scenario.training, scenario.topology
    model = scenario.model
    size = f"{words(model.num_parameters)} parameters"
    if model.moe is not None:
        size += f", {words(model.num_active_parameters)} active"
    return Group(
        Text(
            f"{printable(scenario.model.name)} on {scenario.num_accelerators:,} × "
            f"{printable(topology.accelerator.name)} ({printable(topology.name)})",
            STRONG,
        ),
        Phrases(
            (
                size,
                f"{listing.batch_in_words(training)} × {training.sequence_length:,} tokens a step",
                *_documents(training),
                training.precision,
                printable(scenario.software.name),
            ),
            FAINT,
        ),
        Text(""),
    )


def _documents(training: Training) -> tuple[str, ...]:
    length = training.mean_document_length
    return () if length is None else (f"documents of {length:,} tokens",)


def _answer(plan: Plan, scenario: Scenario) -> RenderableType:
    assert plan.layout is not None
    degrees, pieces = layout_in_words(plan.layout.to_document())
    rows: list[tuple[str, RenderableType | str | None]] = [
        ("Layout", Text(degrees, STRONG)),
        ("", Phrases(pieces)),
        ("", Text(plan.layout.label(), FAINT)),
    ]
    if plan.step_seconds is not None:
        rows.append(("Step", _speed(plan)))
    rows.append(("MFU", _mfu(plan)))
    if plan.memory is not None:
        rows.append(("Memory", _verdict(plan, plan.memory)))
    rows.append(("Run", _run(plan, scenario)))
    return facts(rows)


def _speed(plan: Plan) -> RenderableType:
    text = Text(seconds(plan.step_seconds or 0.0, 4), STRONG)
    text.append(_bar(plan, plan.step_seconds_low, plan.step_seconds_high, seconds), "not bold")
    if plan.tokens_per_second and plan.tokens_per_second_per_accelerator:
        text.append(
            f"; {words(plan.tokens_per_second)} tokens/s, "
            f"{words(plan.tokens_per_second_per_accelerator)} per accelerator",
            "not bold",
        )
    return text


def _bar(plan: Plan, low: float | None, high: float | None, form: Callable[[float], str]) -> str:
    """' (80 %: 6.66 to 8.32 s)', or nothing for a plan without bars."""
    if plan.interval_coverage is None or low is None or high is None:
        return ""
    (first, unit), last = form(low).rsplit(maxsplit=1), form(high)
    first = first if last.endswith(f" {unit}") else f"{first} {unit}"
    return f" ({percent(plan.interval_coverage, 0)}: {first} to {last})"


COUNTED = "counting neither the masked half of attention nor recomputation"
"""Of the FLOPs of MFU: `planner.cost.flops`; other programs count others."""


def _mfu(plan: Plan) -> RenderableType | None:
    if plan.mfu is None:
        return None
    text = Text(percent(plan.mfu), STRONG)
    if plan.mfu_denominator is not None:
        peak = plan.mfu_denominator.peak_flops / 1e12
        precision = plan.mfu_denominator.precision.upper()
        text.append(f" of {peak:,.5g} TFLOP/s dense {precision}", "not bold")
        if plan.mfu_bf16 is not None and precision != "BF16":
            text.append(f", {percent(plan.mfu_bf16)} of dense BF16", "not bold")
    text.append(f", {COUNTED}", "not bold")
    if plan.hfu is not None:
        text.append(f"; HFU {percent(plan.hfu)}, of what kernels execute", "not bold")
    return text


def _verdict(plan: Plan, memory: MemoryReport) -> RenderableType:
    text = Text(memory.verdict if memory.verdict != "no" else "does not fit")
    text.stylize(f"bold {VERDICT_STYLES[memory.verdict]}")
    free = memory.capacity_bytes - memory.peak_bytes
    room = f"{gigabytes(abs(free))} GB {'free' if free >= 0 else 'too much'}"
    text.append(
        f": {gigabytes(memory.peak_bytes)} of {gigabytes(memory.capacity_bytes)} GB, {room}"
        f"{_bar(plan, memory.peak_low_bytes, memory.peak_high_bytes, _gigabytes)}",
        "not bold default",
    )
    if memory.host_bytes is not None and memory.host_capacity_bytes is not None:
        host = f"{gigabytes(memory.host_bytes)} of {gigabytes(memory.host_capacity_bytes)} GB"
        text.append(f"; {host} of its host's pinned", "not bold default")
    return text


def _gigabytes(value: float) -> str:
    return f"{gigabytes(value)} GB"


def _run(plan: Plan, scenario: Scenario) -> str | None:
    tokens = scenario.training.total_tokens
    if plan.days is None or tokens is None:
        return None
    text = f"{words(tokens)} tokens: {_duration(plan.days)}"
    if plan.accelerator_hours is not None:
        text += f", {words(plan.accelerator_hours)} accelerator-hours"
    if plan.cost is not None:
        text += f", {words(plan.cost)} USD"
    return text


def _duration(days: float) -> str:
    return f"{days:,.1f} days" if days >= 2 else f"{24 * days:,.1f} hours"


# ---------------------------------------------------------------- time and memory


def _time(plan: Plan) -> RenderableType | None:
    if not plan.time or not plan.step_seconds:
        return None
    step = plan.step_seconds
    shown = terms_and_other(plan.time, step)
    unit, factor = ("s", 1.0) if step >= 1 else ("ms", 1e-3)
    longest = max(shown.values(), default=1.0)
    rows: list[Sequence[RenderableType | str]] = [
        (
            name.replace("_", " "),
            f"{value / factor:,.3f} {unit}",
            percent(value / step),
            Bar(value / longest, _time_style(name)),
        )
        for name, value in shown.items()
    ]
    rows.append((Text("step", STRONG), f"{step / factor:,.3f} {unit}", percent(1.0), ""))
    return section(
        "Time of a step (slowest stage's rank)",
        table([("", "l"), ("", "r"), ("", "r"), ("", "b")], rows),
    )


def _time_style(term: str) -> str:
    if term.startswith("compute"):
        return "green"
    return "cyan" if term in ("tp", "cp", "ep", "pp", "dp") else "yellow"


def _memory(plan: Plan) -> list[RenderableType | None]:
    if plan.memory is None:
        return []
    return [memory.fullest_stage(plan.memory), memory.stages(plan.memory)]


# ---------------------------------------------------------------- runners-up and warnings


def _runners_up(plan: Plan) -> RenderableType | None:
    if not plan.runners_up or not plan.step_seconds:
        return None
    own = [] if plan.layout is None else [plan.layout]
    layouts = [*own, *(runner.layout for runner in plan.runners_up)]
    labels = layout_labels([layout.to_document() for layout in layouts])
    rows = [
        (
            label,
            seconds(runner.step_seconds, 4),
            signed_percent(runner.loss_fraction),
            differing_terms(runner.terms, runner.groups),
        )
        for label, runner in zip(labels[len(own) :], plan.runners_up, strict=True)
    ]
    columns = [("layout", "w"), ("step", "r"), ("more", "r"), ("mostly in", "w")]
    return section("Runners-up, each in its best placement", table(columns, rows))


def differing_terms(
    terms: Mapping[str, float], groups: Mapping[str, GroupLoss] | None = None
) -> Phrases:
    """The terms that differ most, of traffic with its tier: 'bubble +0.9 s, tp on leaf +0.4 s'."""
    largest = sorted(terms.items(), key=lambda item: -abs(item[1]))[:TOLD_TERMS]
    most = max((abs(value) for _, value in largest), default=0.0)
    return Phrases(
        f"{name.removeprefix('compute_').replace('_', ' ')}{_where(name, groups or {})} "
        f"{signed_seconds(value, 2)}"
        for name, value in largest
        if abs(value) > 0.05 * most
    )


GROUPS_OF_TERMS = {"ep": ("ep", "etp"), "dp": ("shard", "edp", "replicate")}
"""Groups whose exposed seconds a term of another name holds."""


def _where(term: str, groups: Mapping[str, GroupLoss]) -> str:
    """' on leaf', the tier of the group whose seconds of the term differ most."""
    names = [n for n in GROUPS_OF_TERMS.get(term, (term,)) if n in groups]
    name = max(names, key=lambda n: abs(groups[n].extra_seconds), default=None)
    tier = None if name is None else groups[name].tier
    return "" if tier is None else f" on {tier}"


def _warnings(warnings: Sequence[str]) -> RenderableType | None:
    if not warnings:
        return None
    return section("Warnings", *(Text(f"! {printable(text)}", FAIR) for text in warnings))


# ---------------------------------------------------------------- no answer
