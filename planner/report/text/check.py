"""A checked launch script as words and tables: will it run, what was read, what would be better."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from planner.advise.check import Check
from planner.errors import IllegalLayoutError
from planner.frameworks.script import Note
from planner.problem.scenario import scenario_from_document
from planner.report.text.layouts import degrees_in_words, details_in_words
from planner.report.text.numbers import gigabytes, percent, seconds, signed_seconds
from planner.report.text.pieces import (
    BAD,
    FAINT,
    FAIR,
    GOOD,
    STRONG,
    Fact,
    Row,
    facts,
    note,
    printable,
    section,
    stacked,
    table,
)
from planner.report.text.plan.groups import places, traffic
from planner.report.text.plan.head import interval_reason, mfu_of_peak, step_with_interval
from planner.report.text.terms import by_size, term_words

SHOWN_TERMS = 0.002
"""Terms whose difference is below this share of the step are left out."""

VERDICTS = {
    "fits": ("It runs.", GOOD),
    "fragile": ("It runs, but memory is fragile: close to the capacity.", FAIR),
    "no": ("It will not run: it does not fit in memory.", BAD),
    "illegal": ("It will not run: rules are broken.", BAD),
}


def check_report(check: Check) -> RenderableType:
    """Everything a check showed, the verdict first."""
    return stacked(
        _head(check),
        _broken(check),
        _contradictions(check),
        _prediction(check),
        _crossings(check),
        _better(check),
        _understood(check),
        _notes("Not set, so the framework's default", check.defaults),
        _notes("Judged differently than written", check.otherwise, FAIR),
        _notes("Not understood, so not judged", check.unread, FAIR),
        _ignored(check),
    )


def _head(check: Check) -> RenderableType:
    text, style = VERDICTS[check.verdict]
    rows: list[Fact] = [
        ("Script", f"{printable(check.path)}, read as {check.target} ({check.target_version})"),
        ("Judged", f"on {check.num_accelerators:,} accelerators under {printable(check.software)}"),
    ]
    layout = check.layout
    if layout is not None:
        details = ", ".join(details_in_words(layout))
        rows += [
            ("Layout", degrees_in_words(layout)), ("", details), ("", layout.label()),
        ]  # fmt: skip
    rows += [("Products" if i == 0 else "", text) for i, text in enumerate(check.products)]
    return Group(Text(text, f"{STRONG} {style}"), facts(rows))


def _broken(check: Check) -> RenderableType | None:
    if not check.rules:
        return None
    return section("Rules broken", *(_rule(error) for error in check.rules))


def _rule(error: IllegalLayoutError) -> RenderableType:
    text = Text(f"{error.rule}: ", BAD)
    text.append(f"{printable(error.value)}: {printable(error.message)} ", "default")
    text.append(f"({printable(error.source)})", FAINT)
    if error.nearest:
        text.append(f"; nearest valid: {printable(', '.join(error.nearest))}", GOOD)
    return text


def _contradictions(check: Check) -> RenderableType | None:
    if not check.contradictions:
        return None
    rows = [
        (_line(item.line), item.key, _value(item.script), _value(item.scenario))
        for item in check.contradictions
    ]
    return section(
        "The script contradicts the scenario (judged as the script says)",
        table([("line", "r"), ("key", "w"), ("script", "l"), ("scenario", "l")], rows),
    )


def _value(value: object) -> str:
    if value is None:
        return "none"
    return printable(value).lower() if isinstance(value, bool) else printable(value)


def _line(line: int | None) -> str:
    return "" if line is None else str(line)


# ---------------------------------------------------------------- the prediction


def _prediction(check: Check) -> RenderableType | None:
    plan = check.plan
    if plan is None or plan.memory is None or plan.mfu_denominator is None:
        return None
    memory = plan.memory
    peak = f"{gigabytes(memory.peak_bytes)} of {gigabytes(memory.capacity_bytes)} GB"
    walls = ", ".join(f"{name} {group.wall}" for name, group in plan.groups.items())
    rows: list[Fact] = [
        ("Step", step_with_interval(plan)),
        ("", interval_reason(plan)),
        ("MFU", mfu_of_peak(plan)),
        ("Memory", f"{peak}: {memory.verdict}"),
        ("Walls", walls or None),
    ]
    order = "" if plan.rank_order_name is None else f" {plan.rank_order_name}"
    topology = scenario_from_document(plan.inputs, "plan").topology
    return stacked(
        section(f"Prediction, ranks in the framework's own order{order}", facts(rows)),
        places(plan, topology),
        traffic(plan),
    )


def _crossings(check: Check) -> RenderableType | None:
    if not check.crossings:
        return None
    return section("Groups that cross a tier they should not", *_crossing_lines(check))


def _crossing_lines(check: Check) -> Iterator[RenderableType]:
    for item in check.crossings:
        also = "; so does the best layout's" if item.best_too else ""
        yield Text(
            f"{item.group}: {item.members:,} members, {item.inside:,.4g} inside, over "
            f"{', '.join(item.tiers)}: {item.reason}; {seconds(item.exposed_seconds)} of a step "
            f"wait for it{also}",
            FAIR,
        )


def _better(check: Check) -> RenderableType:
    best = check.better
    if best is None or best.layout is None:
        return section("The best layout", Text("no legal layout fits: see `planner plan`", FAIR))
    title = "The best layout of this job"
    step = seconds(best.step_seconds or 0.0, 4)
    answer = Text(f"{best.layout.label()} in {step} a step, MFU {percent(best.mfu or 0.0)}", STRONG)
    gain, plan = check.gain_seconds, check.plan
    if gain is None or plan is None or plan.step_seconds is None or check.terms is None:
        return section(title, answer)
    if gain <= 0:
        return section(
            title, answer, Text("the script's layout is no slower: nothing to gain", GOOD)
        )
    rows: list[Row] = [
        (term_words(term), signed_seconds(-more), percent(-more / plan.step_seconds))
        for term, more in by_size(check.terms)
        if abs(more) >= SHOWN_TERMS * plan.step_seconds
    ]
    return section(
        title,
        answer,
        Text(f"saves {seconds(gain)} a step, {percent(check.gain_fraction or 0.0)}", GOOD),
        table([("term", "l"), ("", "r"), ("of the step", "r")], rows) if rows else None,
    )


# ---------------------------------------------------------------- what was read


def _understood(check: Check) -> RenderableType:
    rows = [
        (
            _line(item.line),
            printable(item.key),
            _value(_joined(item.value)),
            printable(item.setting),
        )
        for item in check.understood
    ]
    columns = [("line", "r"), ("key", "l"), ("value", "w"), ("set by", "w")]
    return section("Understood", table(columns, rows) if rows else note("nothing"))


def _joined(value: object) -> object:
    return "+".join(map(str, value)) if isinstance(value, list | tuple) else value


def _notes(title: str, notes: Sequence[Note], style: str = "") -> RenderableType | None:
    if not notes:
        return None
    rows = [
        (_line(item.line), Text(f"{printable(item.subject)}: {printable(item.text)}", style))
        for item in notes
    ]
    return section(title, table([("line", "r"), ("", "w")], rows))


NOT_READ = "is not read"
"""Text of a setting that no framework of the script has a use for: it is named without it."""


def _ignored(check: Check) -> RenderableType | None:
    if not check.ignored:
        return None
    named = [item for item in check.ignored if item.text == NOT_READ]
    explained = [item for item in check.ignored if item.text != NOT_READ]
    return section(
        "Ignored: no effect on layout and training (line)",
        note(", ".join(_settings(named))) if named else None,
        *(
            Text(f"{setting} {item.text}", FAIR)
            for setting, item in zip(_settings(explained), explained, strict=True)
        ),
    )


def _settings(notes: Iterable[Note]) -> Iterator[str]:
    """'--lr (54)' for each."""
    for item in notes:
        yield printable(item.subject) + (f" ({item.line})" if item.line else "")
