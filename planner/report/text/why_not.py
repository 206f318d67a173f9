"""Why a layout was not chosen, as words and tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from planner.advise.why_not import BrokenRule, WhyNot
from planner.inputs.text import given_text
from planner.layouts.layout import Layout
from planner.planning.plan import GroupLoss
from planner.report.text.layouts import layout_facts, layout_labels
from planner.report.text.numbers import (
    gigabytes,
    percent,
    plural,
    seconds,
    signed_percent,
    signed_seconds,
)
from planner.report.text.pieces import (
    BAD,
    FAIR,
    GOOD,
    STRONG,
    Fact,
    Phrases,
    Row,
    facts,
    note,
    printable,
    section,
    stacked,
    table,
)
from planner.report.text.plan.memory import excess, fullest_stage_name
from planner.report.text.terms import COMMUNICATION, SMALLER_TERMS, term_words

VERDICTS = {
    "illegal": ("illegal", BAD),
    "unfit": ("does not fit", BAD),
    "slower": ("slower", FAIR),
    "larger": ("needs more memory", FAIR),
    "best": ("it is the best one", GOOD),
}

SMALL_FRACTION = 0.0005
"""Differences below this share of the step are summed in one row."""


def why_not_report(answer: WhyNot) -> RenderableType:
    """The verdict, what forbids or slows the layout, and what is nearest."""
    given = ", ".join(f"{key}={given_text(value)}" for key, value in answer.given.items())
    word, style = VERDICTS[answer.verdict]
    head = Text(f"Why not {given}: ", STRONG)
    head.append(word, f"bold {style}")
    head.append(_headline(answer), "not bold default")
    return stacked(
        head,
        _layouts(answer),
        *_rules(answer),
        _miss(answer.miss),
        _terms(answer),
        _groups(answer),
        _nearest(answer),
        *(Text(f"! {printable(text)}", FAIR) for text in answer.warnings),
    )


def _headline(answer: WhyNot) -> str:
    """What follows the verdict in the first line."""
    if answer.verdict == "unfit" and answer.over_bytes is not None:
        return f", {excess(answer.over_bytes)} at best"
    if answer.verdict == "illegal":
        return f" by {plural(len(answer.rules), 'rule')}{' together' * answer.together}"
    if answer.verdict == "larger":
        return _larger(answer)
    if answer.verdict == "slower" and answer.loss_fraction is not None:
        step, best = _steps(answer)
        text = f" by {percent(answer.loss_fraction)}, {seconds(step, 4)} against {seconds(best, 4)}"
        return text + (_main_cause(answer) if answer.loss_fraction > 0 else ": a tie")
    return ""


def _larger(answer: WhyNot) -> str:
    """Both peaks, and both steps."""
    peaks = [one.memory.peak_bytes for one in (answer.other, answer.plan) if one and one.memory]
    higher, lowest = map(gigabytes, peaks)
    step, best = _steps(answer)
    tie = ": a tie" if (answer.more_bytes or 0.0) <= 0 else ""
    return (
        f", a peak of {higher} GB against {lowest} GB{tie}; steps of {seconds(step, 4)} against "
        f"{seconds(best, 4)}"
    )


def _main_cause(answer: WhyNot) -> str:
    """Where most is lost: the term, and for communication the group and its tier."""
    terms, groups = answer.terms or {}, answer.groups or {}
    term = max(terms, key=lambda name: terms[name])
    text = f"; mainly {term_words(term)} {signed_seconds(terms[term], 3)}"
    if term in COMMUNICATION and groups:
        name, group = max(groups.items(), key=lambda item: item[1].extra_seconds)
        text += f", of {name} ({group.members:,} ranks) on {group.tier}"
    return text


def _steps(answer: WhyNot) -> tuple[float, float]:
    """Seconds of a step of the layout asked about, and of the plan."""
    other, best = answer.other, answer.plan
    return (other and other.step_seconds) or 0.0, best.step_seconds or 0.0


# ---------------------------------------------------------------- the layouts


def _layouts(answer: WhyNot) -> RenderableType | None:
    best = answer.plan.layout
    other = answer.other.layout if answer.other is not None else None
    if other is None and answer.miss is not None:
        other = Layout.from_document(answer.miss["layout"])
    shown = [layout for layout in (best, other) if layout is not None]
    # labels of both together, so that equal ones are told apart
    labels = dict(zip(map(id, shown), layout_labels(shown), strict=True))
    rows: list[Fact] = []
    if best is not None:
        rows += layout_facts("Plan", best, labels[id(best)])
    if other is not None and answer.verdict != "best":
        rows += layout_facts("With it", other, labels[id(other)])
    if best is None:
        rows.append(("Plan", Text("no layout fits even without it", FAIR)))
    return Group(Text(""), facts(rows)) if rows else None


# ---------------------------------------------------------------- what forbids it


def _rules(answer: WhyNot) -> Iterator[RenderableType]:
    for rule in answer.rules:
        yield section(f"{printable(rule.value)}: {printable(rule.sentence)}", facts(_rule(rule)))


def _rule(rule: BrokenRule) -> list[Fact]:
    holds = f"software {', '.join(rule.holds_for)}" if rule.holds_for else None
    return [
        ("rule", rule.id),
        ("source", printable(rule.source)),
        ("holds for", holds),
        ("nearest", ", ".join(map(printable, rule.nearest)) or None),
    ]


def _miss(miss: Mapping[str, Any] | None) -> RenderableType | None:
    if miss is None:
        return None
    rows = [
        (term_words(term), gigabytes(value), "largest" * (term == miss["term"]))
        for term, value in sorted(miss["terms"].items(), key=lambda item: -item[1])
        if value >= SMALL_FRACTION * miss["peak_bytes"]
    ]
    rows.append(("peak", gigabytes(miss["peak_bytes"]), excess(miss["over_bytes"])))
    return section(
        f"Its fullest rank, on {fullest_stage_name(miss['stage'])}, in GB",
        table([("", "l"), ("", "r"), ("", "w")], rows),
    )


def _nearest(answer: WhyNot) -> RenderableType | None:
    # each rule names its nearest values already
    if not answer.nearest or (answer.rules and all(rule.nearest for rule in answer.rules)):
        return None
    what = "fit" if answer.verdict == "unfit" else "are legal"
    texts = (text for values in answer.nearest.values() for text in values)
    return section(f"Nearest values that {what}, with the other keys as given", Phrases(texts))


# ---------------------------------------------------------------- what it loses


def _terms(answer: WhyNot) -> RenderableType | None:
    if not answer.terms or answer.other is None or answer.verdict == "best":
        return None
    step, best = _steps(answer)
    own, other = answer.plan.time or {}, answer.other.time or {}
    shown = {n: d for n, d in answer.terms.items() if abs(d) >= SMALL_FRACTION * best}
    rows = [
        (term_words(term), seconds(own[term]), seconds(other[term]), signed_seconds(more))
        for term, more in sorted(shown.items(), key=lambda item: -item[1])
    ]
    rest = sum(answer.terms.values()) - sum(shown.values())
    if abs(rest) > 1e-6 * best:
        rows.append((SMALLER_TERMS, "", "", signed_seconds(rest)))
    total = f"{signed_seconds(step - best)} ({signed_percent(step / best - 1)})"
    rows.append(("step", seconds(best, 4), seconds(step, 4), total))
    columns = [("", "l"), ("plan", "r"), ("with it", "r"), ("difference", "r")]
    return section("Where the step differs", table(columns, rows))


def _groups(answer: WhyNot) -> RenderableType | None:
    step, _ = _steps(answer)
    rows: list[Row] = [
        (
            Text(name, STRONG),
            _members(group),
            str(group.tier or ""),
            seconds(group.best_exposed_seconds),
            seconds(group.exposed_seconds),
            signed_seconds(group.extra_seconds),
        )
        for name, group in (answer.groups or {}).items()
        if abs(group.extra_seconds) >= SMALL_FRACTION * step
    ]
    if not rows:
        return None
    columns = [
        ("group", "l"), ("ranks", "r"), ("slowest on", "l"), ("plan", "r"), ("with it", "r"),
        ("difference", "r"),
    ]  # fmt: skip
    return section(
        "Groups that make the difference", table(columns, rows), note("Exposed seconds of a step.")
    )


def _members(group: GroupLoss) -> str:
    own, other = group.best_members, group.members
    return f"{other:,}" if own == other else f"{own:,} → {other:,}"
