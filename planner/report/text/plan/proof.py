"""What was proven of a plan, and which layouts were left out."""

from __future__ import annotations

from rich.console import RenderableType
from rich.text import Text

from planner.inputs.text import counted_runs
from planner.planning.plan import DefaultSplit, Plan, SearchReport
from planner.report.text.numbers import percent, plural, seconds
from planner.report.text.pieces import FAINT, FAIR, GOOD, Phrases, facts, section, table


def proof(plan: Plan, robust: bool) -> RenderableType | None:
    """The line Proof: what was proven, and the effort."""
    if plan.search is None or plan.objective_seconds is None:
        return None
    rows = [
        ("Proof ", _optimal(plan, robust) if plan.status == "optimal" else _unfinished(plan)),
        ("", _tie(plan, robust)),
        ("", _default_split(plan.default_split, plan.step_seconds)),
        ("", _effort(plan.search)),
    ]
    return facts(rows)


def _optimal(plan: Plan, robust: bool) -> Text:
    """'optimal: no legal layout with the default stage split, however placed, beats 7.049 s'."""
    assert plan.objective_seconds is not None
    choice = plan.choice
    if choice is not None and choice.objective == "least_memory":
        layouts = "no layout that ties for the minimum memory"
    else:
        split = "any" if plan.search is not None and plan.search.any_split else "the default"
        layouts = f"no legal layout with {split} stage split"
    # where the batch is open, the objective is the time per token, as seconds of the chosen batch
    per_token = choice is not None and any("batch" in key for key in choice.asked)
    than = f"{seconds(plan.objective_seconds, 4)}{' (compared per token)' if per_token else ''}"
    beats = f"has an interval that ends below {than}" if robust else f"beats {than}"
    text = Text("optimal", f"bold {GOOD}")
    text.append(f": {layouts}, however placed, {beats}", "not bold default")
    return text


def _unfinished(plan: Plan) -> Text:
    assert plan.objective_seconds is not None
    phrases = [f"best so far {seconds(plan.objective_seconds, 4)}"]
    if plan.bound_seconds is not None:
        phrases.append(f"lower bound {seconds(plan.bound_seconds, 4)}")
    if plan.gap_fraction is not None:
        phrases.append(f"gap {percent(plan.gap_fraction, 2)}")
    text = Text("not finished", f"bold {FAIR}")
    text.append(f": {', '.join(phrases)}", "not bold default")
    return text


def _tie(plan: Plan, robust: bool) -> str | None:
    """Why the plan shown is not the one of the objective's value."""
    assert plan.objective_seconds is not None
    shown_seconds = plan.step_seconds_high if robust else plan.step_seconds
    # more than rounding
    if shown_seconds is None or shown_seconds <= plan.objective_seconds * (1 + 1e-9):
        return None
    above = percent(shown_seconds / plan.objective_seconds - 1, 2)
    return (
        f"the plan shown is a tie, {above} above that, chosen for its rank order or for less "
        "traffic on slow tiers"
    )


def _default_split(default: DefaultSplit | None, step_seconds: float | None) -> str | None:
    """What the chosen stage split gains over the default one."""
    if default is None:
        return None
    layers = counted_runs(default.stage_layers)
    if not default.fits:
        return f"with the default stage split ({layers}) this layout does not fit in memory"
    longer = (default.step_seconds or 0.0) / (step_seconds or 1.0) - 1.0
    return f"with the default stage split ({layers}) this layout takes {percent(longer, 2)} longer"


def _effort(search: SearchReport) -> Phrases:
    return Phrases(
        (
            plural(search.shapes, "layout"),
            f"{search.opened:,} searched in full",
            f"{plural(search.placements, 'placement')} evaluated",
            f"{seconds(search.seconds)} ({seconds(search.cpu_seconds)} of CPU)",
        ),
        FAINT,
    )


def layouts_left_out(plan: Plan) -> RenderableType | None:
    """How many layouts each rule left out."""
    search = plan.search
    if search is None:
        return None
    rows = [
        (f"{count:,}", rule, Text(search.rule_texts.get(rule, ""), FAINT))
        for rule, count in sorted(search.excluded.items(), key=lambda item: -item[1])
        if count
    ]
    if not rows:
        return None
    return section(
        "Layouts left out, by the first rule each breaks",
        table([("", "r"), ("", "l"), ("", "w")], rows),
    )
