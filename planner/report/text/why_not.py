"""Why a layout was not chosen, as words and tables."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from planner.advise.why_not import BrokenRule, WhyNot
from planner.inputs.text import given_text
from planner.planning.plan import GroupLoss
from planner.report.text.layouts import layout_in_words, layout_labels
from planner.report.text.memory import excess, fullest
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
    FAINT,
    FAIR,
    GOOD,
    STRONG,
    Phrases,
    facts,
    note,
    printable,
    section,
    table,
)

VERDICTS = {
    "illegal": ("illegal", BAD),
    "unfit": ("does not fit", BAD),
    "slower": ("slower", FAIR),
    "larger": ("needs more memory", FAIR),
    "best": ("it is the best one", GOOD),
}

SMALL_FRACTION = 0.0005
"""Differences below this share of the step are told together as 'other'."""


def why_not_report(answer: WhyNot) -> RenderableType:
    """The verdict, what forbids or slows the layout, and what is nearest."""
    asked = ", ".join(f"{key}={given_text(value)}" for key, value in answer.given.items())
    word, style = VERDICTS[answer.verdict]
    head = Text(f"Why not {asked}: ", STRONG)
    head.append(word, f"bold {style}")
    head.append(_headline(answer), "not bold default")
    parts: list[RenderableType | None] = [
        head,
        _layouts(answer),
        *_rules(answer),
        _miss(answer),
        _terms(answer),
        _groups(answer),
        _nearest(answer),
    ]
    parts += [Text(f"! {printable(text)}", FAIR) for text in answer.warnings]
    return Group(*(part for part in parts if part is not None))


def _headline(answer: WhyNot) -> str:
    if answer.verdict == "unfit" and answer.over_bytes is not None:
        return f", {excess(answer.over_bytes)} at best"
    if answer.verdict == "illegal":
        return f" by {plural(len(answer.rules), 'rule')}{' together' * answer.together}"
    if answer.verdict == "larger":
        return _larger(answer)
    if answer.verdict == "slower" and answer.loss_fraction is not None:
        step, best = _steps(answer)
        told = f" by {percent(answer.loss_fraction)}, {seconds(step, 4)} against {seconds(best, 4)}"
        return told + _mostly(answer) if answer.loss_fraction > 0 else told + ": a tie"
    return ""


def _larger(answer: WhyNot) -> str:
    """The peaks, and what the step is beside them."""
    peaks = [one.memory.peak_bytes for one in (answer.other, answer.plan) if one and one.memory]
    higher, least = map(gigabytes, peaks)
    step, best = _steps(answer)
    told = f", {higher} GB at its peak against {least} GB"
    tie = ": a tie" if (answer.more_bytes or 0.0) <= 0 else ""
    return f"{told}{tie}; steps of {seconds(step, 4)} against {seconds(best, 4)}"


def _mostly(answer: WhyNot) -> str:
    """Where most of it is lost: the term, and for traffic the group and its tier."""
    terms, groups = answer.terms or {}, answer.groups or {}
    term = max(terms, key=lambda name: terms[name])
    told = f"; mostly {term.replace('_', ' ')} {signed_seconds(terms[term], 3)}"
    if term in ("tp", "cp", "ep", "pp", "dp") and groups:
        name, group = max(groups.items(), key=lambda item: item[1].extra_seconds)
        told += f", of {name} ({group.members:,} ranks) on {group.tier}"
    return told


def _steps(answer: WhyNot) -> tuple[float, float]:
    other, best = answer.other, answer.plan
    return (other and other.step_seconds) or 0.0, best.step_seconds or 0.0


# ---------------------------------------------------------------- the layouts


def _layouts(answer: WhyNot) -> RenderableType | None:
    plans = (answer.plan, answer.other)
    best, other = (plan.layout.to_document() if plan and plan.layout else None for plan in plans)
    if other is None and answer.miss is not None:
        other = answer.miss["layout"]
    shown = [document for document in (best, other) if document is not None]
    labels = dict(zip(map(id, shown), layout_labels(shown), strict=True))
    rows: list[tuple[str, RenderableType | str | None]] = []
    for name, document in (("Plan", best), ("With it", other)):
        if document is None or (name == "With it" and answer.verdict == "best"):
            continue
        degrees, pieces = layout_in_words(document)
        rows += [(name, degrees), ("", Phrases(pieces)), ("", Text(labels[id(document)], FAINT))]
    if best is None:
        rows.append(("Plan", Text("no layout fits without it either", FAIR)))
    return Group(Text(""), facts(rows)) if rows else None


# ---------------------------------------------------------------- what forbids it


def _rules(answer: WhyNot) -> Iterator[RenderableType]:
    for rule in answer.rules:
        yield section(f"{printable(rule.value)}: {printable(rule.sentence)}", facts(_rule(rule)))


def _rule(rule: BrokenRule) -> list[tuple[str, RenderableType | str | None]]:
    holds = f"software {', '.join(rule.holds_for)}" if rule.holds_for else None
    return [
        ("rule", rule.id),
        ("source", printable(rule.source)),
        ("holds for", holds),
        ("nearest", ", ".join(map(printable, rule.nearest)) or None),
    ]


def _miss(answer: WhyNot) -> RenderableType | None:
    miss = answer.miss
    if miss is None:
        return None
    rows = [
        (name.replace("_", " "), gigabytes(value), "largest" * (name == miss["term"]))
        for name, value in sorted(miss["terms"].items(), key=lambda item: -item[1])
        if value >= SMALL_FRACTION * miss["peak_bytes"]
    ]
    rows.append(("peak", gigabytes(miss["peak_bytes"]), excess(miss["over_bytes"])))
    return section(
        f"Its fullest rank, on {fullest(miss)}, in GB",
        table([("", "l"), ("", "r"), ("", "w")], rows),
    )


def _nearest(answer: WhyNot) -> RenderableType | None:
    if not answer.nearest or (answer.rules and all(rule.nearest for rule in answer.rules)):
        return None
    what = "fit" if answer.verdict == "unfit" else "are legal"
    texts = (text for values in answer.nearest.values() for text in values)
    return section(f"Nearest values that {what}, the others as given", Phrases(texts))


# ---------------------------------------------------------------- what it loses


def _terms(answer: WhyNot) -> RenderableType | None:
    if not answer.terms or answer.other is None or answer.verdict == "best":
        return None
    step, best = _steps(answer)
    own, other = answer.plan.time or {}, answer.other.time or {}
    shown = {n: d for n, d in answer.terms.items() if abs(d) >= SMALL_FRACTION * best}
    rows = [
        (name.replace("_", " "), seconds(own[name]), seconds(other[name]), signed_seconds(more))
        for name, more in sorted(shown.items(), key=lambda item: -item[1])
    ]
    rest = sum(answer.terms.values()) - sum(shown.values())
    if abs(rest) > 1e-6 * best:
        rows.append(("other", "", "", signed_seconds(rest)))
    total = f"{signed_seconds(step - best)} ({signed_percent(step / best - 1)})"
    rows.append(("step", seconds(best, 4), seconds(step, 4), total))
    columns = [("", "l"), ("plan", "r"), ("with it", "r"), ("more", "r")]
    return section("Where the step differs", table(columns, rows))


def _groups(answer: WhyNot) -> RenderableType | None:
    step, _ = _steps(answer)
    groups = answer.groups or {}
    rows = [
        (
            Text(name, STRONG),
            _members(group),
            str(group.tier or ""),
            seconds(group.best_exposed_seconds),
            seconds(group.exposed_seconds),
            signed_seconds(group.extra_seconds),
        )
        for name, group in groups.items()
        if abs(group.extra_seconds) >= SMALL_FRACTION * step
    ]
    if not rows:
        return None
    columns = [
        ("group", "l"), ("ranks", "r"), ("slowest on", "l"), ("plan", "r"), ("with it", "r"),
        ("more", "r"),
    ]  # fmt: skip
    return section(
        "Groups that make the difference", table(columns, rows), note("Seconds that do not hide.")
    )


def _members(group: GroupLoss) -> str:
    own, other = group.best_members, group.members
    return f"{other:,}" if own == other else f"{own:,} → {other:,}"
