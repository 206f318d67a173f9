"""Why not this layout: the rules or limits that forbid it, or what it loses and where.

Keys that are not given are free: the answer is about the best completion, found by the same proven
search restricted to them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, Literal

from planner.cost.context import CostContext
from planner.errors import IllegalLayoutError, InputError
from planner.inputs import files
from planner.inputs.text import given_text
from planner.layouts.layout import Layout
from planner.planning.assemble import PLACEMENT_RULE, RULE_TEXTS, plan_of_search
from planner.planning.document import document
from planner.planning.groups import group_losses
from planner.planning.layout_search import LayoutSearch, Stopwatch
from planner.planning.options import is_open, options
from planner.planning.plan import GroupLoss, Plan
from planner.planning.solve import chosen_scenario, plan
from planner.problem.scenario import Scenario
from planner.problem.software import Software
from planner.search.infeasible import relax
from planner.search.infeasible.forbidden import completions, forbidding, nearest, rules_of_keys
from planner.search.leanest import best_of
from planner.search.protocol import Watch, unwatched
from planner.search.rules.model import rules_for
from planner.search.rules.rules import BY_SOFTWARE
from planner.search.space.enumerate import SEARCH_RULE
from planner.search.space.given import given_values, judged_layout, parse_layout
from planner.search.space.restrictions import SEARCH_PREFIX, fixed, listed, outside, unsearched
from planner.search.space.room import accepted

PATH = "--why-not"

Near = Mapping[str, tuple[str, ...]]
"""Given keys to their nearest values that can be, as text."""


Verdict = Literal["illegal", "unfit", "slower", "larger", "best"]


@dataclass(frozen=True, slots=True)
class BrokenRule:
    """A rule that forbids what was asked for: its id and sentence, its source with the versions it
    is from, the shipped software profiles it holds for, the values it judges, and the nearest of
    them that are legal with the other given keys."""

    id: str
    sentence: str
    source: str
    holds_for: tuple[str, ...]
    value: str
    nearest: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WhyNot:
    """Given layout keys, at their best completion, held against the plan.

    Verdicts: illegal (`rules` forbid it, each alone or, where `together`, only jointly), unfit
    (every completion exceeds memory, the best by `over_bytes` in `stage`, mostly in `term`),
    slower (by `loss_fraction` of the plan's step; `terms` are the seconds more by time term, whose
    sum is the difference of the steps; `groups` what each group takes more and where), larger
    (where the least memory is asked for: by `more_bytes` of peak), best (the plan itself).
    `nearest` are the nearest values of each given key that are legal (of what does not fit: that
    fit) with the others as given. A layout that `search:` alone forbids is illegal and has its loss
    too.
    """

    plan: Plan
    given: Mapping[str, Any]
    verdict: Verdict
    other: Plan | None = None
    rules: tuple[BrokenRule, ...] = ()
    together: bool = False
    over_bytes: float | None = None
    stage: int | None = None
    term: str | None = None
    miss: Mapping[str, Any] | None = None
    loss_fraction: float | None = None
    more_bytes: float | None = None
    terms: Mapping[str, float] = field(default_factory=dict)
    groups: Mapping[str, GroupLoss] = field(default_factory=dict)
    nearest: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def to_document(self) -> dict[str, Any]:
        """The answer as one JSON document."""
        return document(self)


def why_not(
    scenario: Scenario,
    given: str | Mapping[str, Any],
    best: Plan | None = None,
    watch: Watch = unwatched,
) -> WhyNot:
    """Why the plan is not the given layout, or the best one with the given keys.

    best: the scenario's plan, if it is known already.

    Where the scenario leaves its count, precision or batch open, the answer is for the plan's.

    Raises:
        InputError: no key, an unknown one, or a value that is none of its values.
        PlannerError: the scenario cannot be costed.
    """
    values = given_values(parse_layout(given, PATH) if isinstance(given, str) else given, PATH)
    if not values:
        raise InputError(
            "no layout key is given",
            key=PATH,
            value=given,
            allowed="key=value,… such as tp=16,pp=2",
        )
    if best is None:
        best = plan(scenario, 1, watch=watch)
    scenario = chosen_scenario(scenario, best)
    if is_open(scenario):  # nothing was chosen: nothing fits
        *_, scenario = options(scenario)
    ctx = CostContext.of(scenario)
    if best.layout is not None and _matches(best.layout, values):
        zeros = dict.fromkeys(best.time or {}, 0.0)
        return WhyNot(best, values, "best", other=best, loss_fraction=0.0, terms=zeros)
    other = _completed(ctx, scenario, values, watch)
    if other is None or other.layout is None:
        return _impossible(ctx, scenario, values, best)
    answer = _compared(scenario, best, values, other)
    beyond = outside(scenario.search, values)
    if not beyond:
        return answer
    return replace(answer, verdict="illegal", rules=_restricted(scenario, values, beyond))


def _matches(layout: Layout, values: Mapping[str, Any]) -> bool:
    """Whether the layout has the given values."""
    return all(getattr(layout, key) == value for key, value in values.items())


# ---------------------------------------------------------------- the best completion


def _completed(
    ctx: CostContext, scenario: Scenario, values: Mapping[str, Any], watch: Watch
) -> Plan | None:
    """The best layout with the given keys in its best placement; none where nothing can be."""
    asked = fixed(scenario.search, ctx.software, values)
    narrowed = scenario.replace(search=asked)
    if not unsearched(ctx.software, values):
        found = plan(narrowed, 1, watch=watch, reasons=False)
        return found if found.layout is not None else None
    stopwatch = Stopwatch()
    tables = completions(ctx, scenario.search, values, prune=True)
    answer = best_of(ctx, asked, tables, watch)
    if answer is None:
        return None
    return plan_of_search(LayoutSearch(narrowed, ctx, answer), stopwatch)


def _compared(scenario: Scenario, best: Plan, values: Mapping[str, Any], other: Plan) -> WhyNot:
    """What a layout that can be takes more than the plan, by term and by group; of memory, where
    that is what the plan is best at."""
    assert other.time is not None and other.step_seconds is not None and other.memory is not None
    if best.time is None or best.step_seconds is None or best.memory is None:
        return WhyNot(best, values, "slower", other=other, warnings=other.warnings)
    leanest = scenario.search.objective == "least_memory"
    return WhyNot(
        best,
        values,
        "larger" if leanest else "slower",
        other=other,
        loss_fraction=other.step_seconds / best.step_seconds - 1.0,
        more_bytes=other.memory.peak_bytes - best.memory.peak_bytes if leanest else None,
        terms={name: value - best.time[name] for name, value in other.time.items()},
        groups=group_losses(best.groups, other.groups),
        warnings=other.warnings,
    )


# ---------------------------------------------------------------- what cannot be


def _impossible(
    ctx: CostContext, scenario: Scenario, values: Mapping[str, Any], best: Plan
) -> WhyNot:
    """Why no completion can be: rules, or memory."""
    search = scenario.search
    asked = fixed(search, ctx.software, values)
    misses = []
    for table in completions(ctx, search, values, prune=False):
        if len(table) and accepted(ctx, asked, table).any():
            rule = _rule(ctx, scenario, values, PLACEMENT_RULE, {})
            return WhyNot(best, values, "illegal", rules=(rule,))
        miss = relax.nearest_miss(ctx, asked, table)
        misses += [miss] if miss is not None else []
    if misses:
        miss = min(misses, key=lambda one: one["over_bytes"])
        return WhyNot(
            best,
            values,
            "unfit",
            over_bytes=miss["over_bytes"],
            stage=miss["stage"],
            term=miss["term"],
            miss=miss,
            nearest=_nearest(ctx, scenario, values, fits=True),
        )
    return _illegal(ctx, scenario, values, best)


def _illegal(ctx: CostContext, scenario: Scenario, values: Mapping[str, Any], best: Plan) -> WhyNot:
    found = forbidding(ctx, scenario.search, values)
    together = found is not None and not found.alone
    near = _nearest(ctx, scenario, values, fits=False)
    if found is not None:
        rules = tuple(_rule(ctx, scenario, values, name, near) for name in found.ids)
    else:
        _, broken = judged_layout(ctx, values, PATH)
        broken = [error for error in broken if not _seated(ctx, values, error)] or broken
        told = {error.rule for error in broken}
        own = (name for name in rules_of_keys(ctx, values) if name not in told)
        rules = (
            *(_broken(values, error, near) for error in broken),
            *(_rule(ctx, scenario, values, name, near) for name in own),
        )
    beyond = outside(scenario.search, values)
    return WhyNot(
        best,
        values,
        "illegal",
        rules=(*rules, *_restricted(scenario, values, beyond)),
        together=together,
        nearest=near,
    )


def _seated(ctx: CostContext, values: Mapping[str, Any], error: IllegalLayoutError) -> bool:
    """Whether the count of accelerators is wrong only for what free degrees were taken to be."""
    dp = values.get("dp", values.get("dp_shard", 1) * values.get("dp_replicate", 1))
    given = prod(values.get(axis, 1) for axis in ("tp", "cp", "pp")) * dp
    free = not {"tp", "cp", "pp"} <= values.keys()
    return error.rule == "world-size" and free and ctx.num_accelerators % given == 0


def _nearest(
    ctx: CostContext,
    scenario: Scenario,
    values: Mapping[str, Any],
    fits: bool,
) -> Near:
    """key → its nearest values that can be, as text; keys that have none are left out."""
    found = {}
    for key in values:
        if key in unsearched(ctx.software, values):
            continue
        near = nearest(ctx, scenario.search, values, key, fits)
        if near:
            found[key] = tuple(f"{key}={given_text(value)}" for value in near)
    return found


def _rule(
    ctx: CostContext, scenario: Scenario, values: Mapping[str, Any], name: str, near: Near
) -> BrokenRule:
    """What is known of a rule or restriction by its id."""
    if name.startswith(SEARCH_PREFIX):
        return _restriction(scenario, name.removeprefix(SEARCH_PREFIX), name)
    rule = next((rule for rule in rules_for(ctx) if rule.id == name), None)
    if rule is None:
        return BrokenRule(name, RULE_TEXTS[name], "definition", (), _given(values, values), ())
    keys = tuple(key for key in rule.keys if key in values)
    return BrokenRule(
        id=rule.id,
        sentence=rule.sentence,
        source=rule.source,
        holds_for=holds_for(rule.id),
        value=_given(values, keys or tuple(values)),
        nearest=tuple(text for key in keys for text in near.get(key, ())),
    )


def _broken(values: Mapping[str, Any], error: IllegalLayoutError, near: Near) -> BrokenRule:
    """A rule that the layout of the given keys breaks before any other is chosen."""
    keys = tuple(key for key in values if f"{key}=" in str(error.value)) or tuple(values)
    texts = tuple(text for key in keys for text in near.get(key, ()))
    return BrokenRule(
        id=error.rule,
        sentence=error.message,
        source=error.source,
        holds_for=holds_for(error.rule),
        value=str(error.value),
        nearest=texts or tuple(error.nearest),
    )


def _restricted(
    scenario: Scenario, values: Mapping[str, Any], keys: tuple[str, ...]
) -> tuple[BrokenRule, ...]:
    """The scenario's own restrictions that do not list given values."""
    return tuple(
        _restriction(
            scenario,
            key,
            _given(values, (key,)),
            _listed_nearest(listed(scenario.search, key) or (), key, values[key]),
        )
        for key in keys
    )


def _restriction(
    scenario: Scenario, key: str, value: str, nearest: tuple[str, ...] = ()
) -> BrokenRule:
    """What the scenario's search lists of a key, which leaves out `value`."""
    allowed = ", ".join(map(given_text, listed(scenario.search, key) or ()))
    return BrokenRule(
        SEARCH_RULE, f"search: lists {key} of {allowed} alone", "the scenario's search:", (),
        value, nearest,
    )  # fmt: skip


def _listed_nearest(choices: tuple[Any, ...], key: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, int) or isinstance(value, bool):
        return tuple(f"{key}={given_text(choice)}" for choice in choices)
    below = max((v for v in choices if v < value), default=None)
    above = min((v for v in choices if v > value), default=None)
    return tuple(f"{key}={v}" for v in (below, above) if v is not None)


def _given(values: Mapping[str, Any], keys: Any) -> str:
    return ", ".join(f"{key}={given_text(values[key])}" for key in keys)


def holds_for(rule: str) -> tuple[str, ...]:
    """The shipped software profiles under which a rule holds; none where it holds under all."""
    if rule not in {known.id for known in BY_SOFTWARE}:
        return ()
    shipped = (files.load(name, "software", Software) for name in files.names("software"))
    return tuple(software.name for software in shipped if rule in software.rules)
