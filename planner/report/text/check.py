"""A checked launch script as words and tables: will it run, what was read, what would be better."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from planner.advise.check import Check
from planner.errors import IllegalLayoutError
from planner.frameworks.script import Note
from planner.report.text.groups import places, traffic
from planner.report.text.layouts import layout_in_words
from planner.report.text.numbers import gigabytes, percent, seconds, signed_seconds
from planner.report.text.pieces import (
    BAD,
    FAINT,
    FAIR,
    GOOD,
    STRONG,
    facts,
    note,
    printable,
    section,
    table,
)

SHOWN_TERMS = 0.002
"""Terms whose difference is below this share of the step are left out."""

WORDS = {
    "fits": ("It runs.", GOOD),
    "fragile": ("It runs, but memory is fragile: close under the capacity.", FAIR),
    "no": ("It will not run: it does not fit in memory.", BAD),
    "illegal": ("It will not run: rules are broken.", BAD),
}


def check_report(check: Check) -> RenderableType:
    """Everything a check found, the verdict first."""
    parts = [
        _head(check),
        _broken(check),
        _contradictions(check),
        _figures(check),
        _crossings(check),
        _better(check),
        _understood(check),
        _notes("Not said, so as the framework does", check.defaults),
        _notes("Judged otherwise than written", check.otherwise, FAIR),
        _notes("Not understood, so not judged", check.unread, FAIR),
        _ignored(check),
    ]
    return Group(*(part for part in parts if part is not None))


def _head(check: Check) -> RenderableType:
    text, style = WORDS[check.verdict]
    lines: list[RenderableType] = [Text(text, f"{STRONG} {style}")]
    layout = check.layout
    rows: list[tuple[str, RenderableType | str | None]] = [
        ("Script", f"{printable(check.path)}, read as {check.target} ({check.target_version})"),
        ("Judged", f"on {check.num_accelerators:,} accelerators under {printable(check.software)}"),
    ]
    if layout is not None:
        degrees, pieces = layout_in_words(layout.to_document())
        rows += [("Layout", degrees), ("", ", ".join(pieces)), ("", layout.label())]
    rows += [("Products" if i == 0 else "", text) for i, text in enumerate(check.products)]
    return Group(*lines, facts(rows))


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
    return "none" if value is None else printable(value).lower() if isinstance(value, bool) else (
        printable(value)
    )  # fmt: skip


def _line(line: int | None) -> str:
    return "" if line is None else str(line)


def _figures(check: Check) -> RenderableType | None:
    plan = check.plan
    if plan is None or plan.memory is None or plan.mfu_denominator is None:
        return None
    memory, denominator = plan.memory, plan.mfu_denominator
    peak, precision = denominator.peak_flops / 1e12, denominator.precision.upper()
    walls = ", ".join(f"{name} {group.wall}" for name, group in plan.groups.items())
    rows: list[tuple[str, RenderableType | str | None]] = [
        ("Step", f"{seconds(plan.step_seconds or 0.0, 4)} predicted"),
        ("MFU", f"{percent(plan.mfu or 0.0)} of {peak:,.5g} TFLOP/s dense {precision}"),
        ("Memory", f"{gigabytes(memory.peak_bytes)} of {gigabytes(memory.capacity_bytes)} GB: "
         f"{memory.verdict}"),
        ("Walls", walls or None),
    ]  # fmt: skip
    order = plan.rank_order_name
    return Group(
        section("Predicted, ranks in the framework's own order" + (f" {order}" if order else ""),
                facts(rows)),
        *(part for part in (_places(check), traffic(plan)) if part is not None),
    )  # fmt: skip


def _places(check: Check) -> RenderableType | None:
    from planner.problem.scenario import scenario_from_document

    assert check.plan is not None
    return places(check.plan, scenario_from_document(check.plan.inputs, "plan"))


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


def _better(check: Check) -> RenderableType | None:
    better = check.better
    if better is None or better.layout is None:
        return section("The best layout", Text("none is legal and fits: see `planner plan`", FAIR))
    label = better.layout.label()
    step = seconds(better.step_seconds or 0.0, 4)
    lines: list[RenderableType] = [
        Text(f"{label} in {step} a step, MFU {percent(better.mfu or 0.0)}", STRONG)
    ]
    gain, plan = check.gain_seconds, check.plan
    if gain is None or plan is None or plan.step_seconds is None or check.terms is None:
        return section("The best layout of this job", *lines)
    if gain <= 0:
        lines.append(Text("the script's layout is no slower: nothing to gain", GOOD))
        return section("The best layout of this job", *lines)
    lines.append(Text(f"gains {seconds(gain)} a step, {percent(check.gain_fraction or 0.0)}", GOOD))
    rows: list[Sequence[RenderableType | str]] = [
        (term.replace("_", " "), signed_seconds(-more), percent(-more / plan.step_seconds))
        for term, more in sorted(check.terms.items(), key=lambda item: -abs(item[1]))
        if abs(more) >= SHOWN_TERMS * plan.step_seconds
    ]
    if rows:
        lines.append(table([("in", "l"), ("", "r"), ("of the step", "r")], rows))
    return section("The best layout of this job", *lines)


def _understood(check: Check) -> RenderableType:
    rows = [
        (_line(said.line), printable(said.key), _value(_split(said.value)), printable(said.setting))
        for said in check.understood
    ]
    columns = [("line", "r"), ("key", "l"), ("value", "w"), ("said by", "w")]
    return section("Understood", table(columns, rows) if rows else note("nothing"))


def _split(value: object) -> object:
    return "+".join(map(str, value)) if isinstance(value, list | tuple) else value


def _notes(title: str, notes: Sequence[Note], style: str = "") -> RenderableType | None:
    if not notes:
        return None
    rows = [
        (_line(item.line), Text(f"{printable(item.subject)}: {printable(item.text)}", style))
        for item in notes
    ]
    return section(title, table([("line", "r"), ("", "w")], rows))


def _ignored(check: Check) -> RenderableType | None:
    if not check.ignored:
        return None
    plain = [item for item in check.ignored if item.text == "is not read"]
    told = [item for item in check.ignored if item not in plain]
    parts: list[RenderableType] = []
    if plain:
        named = (f"{printable(i.subject)}" + (f" ({i.line})" if i.line else "") for i in plain)
        parts.append(note(", ".join(named)))
    parts += [
        Text(f"{printable(i.subject)}" + (f" ({i.line})" if i.line else "") + f" {i.text}", FAIR)
        for i in told
    ]
    return section("Ignored: of no weight for layout and training (line)", *parts)
