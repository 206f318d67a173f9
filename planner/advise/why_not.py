"""Why not this layout: the rules or limits that forbid it, or what it loses and where.

Keys that are not given are free: the answer is about the best completion, found by the same proven
search restricted to the given ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, Literal

from planner.cost.context import CostContext
from planner.errors import IllegalLayoutError, InputError
from planner.frameworks.layout_rules import FRAMEWORK_RULES
from planner.inputs.files import names
from planner.inputs.text import given_text
from planner.inputs.values import load
from planner.layouts.layout import Layout
from planner.planning.assemble import PLACEMENT_RULE, RULE_TEXTS, plan_of_search
from planner.planning.document import document
from planner.planning.groups import group_losses
from planner.planning.layout_search import LayoutSearch, Stopwatch
from planner.planning.options import is_open, options
from planner.planning.plan import GroupLoss, Plan
from planner.planning.solve import chosen_scenario, plan
from planner.problem.scenario import Scenario, ScenarioLike, Search, load_scenario
from planner.problem.software import Software
from planner.search.infeasible import relaxation
from planner.search.infeasible.given_keys import (
    completions,
    conflict_of_keys,
    nearest_values,
    rules_of_keys,
)
from planner.search.interface import Watch, unwatched
from planner.search.lowest_memory import best_of
from planner.search.rules.catalog import rules_for
from planner.search.space.enumerate import SEARCH_RULE
from planner.search.space.given import given_values, judged_layout, layout_values
from planner.search.space.limits import fits_in_memory
from planner.search.space.restrictions import SEARCH_PREFIX, fixed, listed, outside, unsearched

PATH = "--why-not"

Nearest = Mapping[str, tuple[str, ...]]
"""Given keys to the nearest values of each that are possible, as text."""

Verdict = Literal["illegal", "unfit", "slower", "larger", "best"]


@dataclass(frozen=True, slots=True)
class BrokenRule:
    """A rule that forbids the given keys.

    source: with the versions that it is from. holds_for: the shipped software profiles that have
    it; none where all have. value: the given keys that it judges. nearest: their nearest values
    that are legal with the other given keys.
    """

    id: str
    sentence: str
    source: str
    holds_for: tuple[str, ...]
    value: str
    nearest: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WhyNot:
    """Given layout keys, at their best completion, against the plan.

    verdict:
        illegal: `rules` forbid it, each by itself or, where `together`, only jointly;
        unfit: every completion exceeds memory, the best by `over_bytes` in `stage`, mostly in
            `term`; `miss` has its memory;
        slower: by `loss_fraction` of the plan's step; `terms` are the seconds more by term of time,
            whose sum is the difference of the steps, `groups` what each group loses;
        larger: where the lowest memory is the objective, by `more_bytes` of peak;
        best: the plan itself.
    nearest: the nearest values of each given key that are legal (unfit: that fit) with the others
    as given. A layout that only `search:` forbids is illegal and has its loss too.
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
    nearest: Nearest = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def to_document(self) -> dict[str, Any]:
        """The answer as one JSON document."""
        return document(self)


def why_not(
    scenario: ScenarioLike,
    given: str | Mapping[str, Any],
    best: Plan | None = None,
    watch: Watch = unwatched,
) -> WhyNot:
    """Why the plan is not the given layout, or the best one with the given keys.

    best: the scenario's plan, if it is known already. Where the scenario leaves its count,
    precision or batch open, the answer is for the plan's.

    Raises:
        InputError: no key, an unknown one, or a value that is none of its values.
        PlannerError: the scenario cannot be costed.
    """
    scenario = load_scenario(scenario)
    values = given_values(layout_values(given, PATH), PATH)
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
    question = _Question(scenario, CostContext.of(scenario), values, best)
    if best.layout is not None and _has(best.layout, values):
        zeros = dict.fromkeys(best.time or {}, 0.0)
        return WhyNot(best, values, "best", other=best, loss_fraction=0.0, terms=zeros)
    other = _best_completion(question, watch)
    if other is None:
        return _impossible(question)
    answer = _compared(question, other)
    restricted = outside(scenario.search, values)
    if not restricted:
        return answer
    return replace(answer, verdict="illegal", rules=_restrictions(question, restricted))


@dataclass(frozen=True, slots=True)
class _Question:
    """Given keys and their values in a scenario, and the plan to compare with."""

    scenario: Scenario
    ctx: CostContext
    values: Mapping[str, Any]
    best: Plan

    @property
    def restricted_search(self) -> Search:
        """The scenario's search among layouts with the given values."""
        return fixed(self.scenario.search, self.ctx.software, self.values)

    def answer(self, verdict: Verdict, **details: Any) -> WhyNot:
        """An answer to this question."""
        return WhyNot(self.best, self.values, verdict, **details)

    def text(self, keys: Iterable[str]) -> str:
        """Given keys and their values as text."""
        return ", ".join(f"{key}={given_text(self.values[key])}" for key in keys)


def _has(layout: Layout, values: Mapping[str, Any]) -> bool:
    """Whether the layout has the given values."""
    return all(getattr(layout, key) == value for key, value in values.items())


# ---------------------------------------------------------------- the best completion


def _best_completion(question: _Question, watch: Watch) -> Plan | None:
    """The best layout with the given keys in its best placement; None where none is possible."""
    scenario, ctx, values = question.scenario, question.ctx, question.values
    search = question.restricted_search
    restricted = scenario.replace(search=search)
    if not unsearched(ctx.software, values):
        completion = plan(restricted, 1, watch=watch, reasons=False)
        return completion if completion.layout is not None else None
    # values that no search tries: their completions are listed instead
    stopwatch = Stopwatch()
    tables = completions(ctx, scenario.search, values, prune=True)
    answer = best_of(ctx, search, tables, watch)
    if answer is None:
        return None
    completion = plan_of_search(LayoutSearch(restricted, ctx, answer), stopwatch)
    return completion if completion.layout is not None else None


def _compared(question: _Question, other: Plan) -> WhyNot:
    """What a possible layout takes more than the plan, by term and by group; of memory too, where
    that is the objective."""
    best = question.best
    assert other.time is not None and other.step_seconds is not None and other.memory is not None
    if best.time is None or best.step_seconds is None or best.memory is None:
        return question.answer("slower", other=other, warnings=other.warnings)
    by_memory = question.scenario.search.objective == "least_memory"
    return question.answer(
        "larger" if by_memory else "slower",
        other=other,
        loss_fraction=other.step_seconds / best.step_seconds - 1.0,
        more_bytes=other.memory.peak_bytes - best.memory.peak_bytes if by_memory else None,
        terms={name: value - best.time[name] for name, value in other.time.items()},
        groups=group_losses(best.groups, other.groups),
        warnings=other.warnings,
    )


# ---------------------------------------------------------------- what is not possible


def _impossible(question: _Question) -> WhyNot:
    """Why no completion is possible: rules, or memory."""
    ctx, search = question.ctx, question.restricted_search
    misses = []
    for table in completions(ctx, question.scenario.search, question.values, prune=False):
        if len(table) and fits_in_memory(ctx, search, table).any():
            return question.answer("illegal", rules=(_rule(question, PLACEMENT_RULE, {}),))
        miss = relaxation.nearest_miss(ctx, search, table)
        misses += [miss] if miss is not None else []
    if not misses:
        return _illegal(question)
    miss = min(misses, key=lambda one: one["over_bytes"])
    return question.answer(
        "unfit",
        over_bytes=miss["over_bytes"],
        stage=miss["stage"],
        term=miss["term"],
        miss=miss,
        nearest=_nearest(question, fits=True),
    )


def _illegal(question: _Question) -> WhyNot:
    ctx, values, search = question.ctx, question.values, question.scenario.search
    near = _nearest(question, fits=False)
    conflict = conflict_of_keys(ctx, search, values)
    if conflict is not None:
        rules = [_rule(question, name, near) for name in conflict.ids]
    else:
        _, errors = judged_layout(ctx, values, PATH)
        errors = [error for error in errors if not _is_of_free_degrees(question, error)] or errors
        known = {error.rule for error in errors}
        rules = [_broken(question, error, near) for error in errors]
        of_keys = (name for name in rules_of_keys(ctx, values) if name not in known)
        rules += [_rule(question, name, near) for name in of_keys]
    return question.answer(
        "illegal",
        rules=(*rules, *_restrictions(question, outside(search, values))),
        together=conflict is not None and not conflict.each_suffices,
        nearest=near,
    )


def _is_of_free_degrees(question: _Question, error: IllegalLayoutError) -> bool:
    """Whether the count of accelerators is wrong only for what free degrees were taken to be."""
    values = question.values
    dp = values.get("dp", values.get("dp_shard", 1) * values.get("dp_replicate", 1))
    given = prod(values.get(axis, 1) for axis in ("tp", "cp", "pp")) * dp
    free = not {"tp", "cp", "pp"} <= values.keys()
    return error.rule == "world-size" and free and question.ctx.num_accelerators % given == 0


def _nearest(question: _Question, fits: bool) -> Nearest:
    """The nearest values of each given key, that are legal or also fit; keys without are left
    out."""
    texts = {}
    for key in question.values:
        if key in unsearched(question.ctx.software, question.values):
            continue
        near = nearest_values(question.ctx, question.scenario.search, question.values, key, fits)
        if near:
            texts[key] = tuple(f"{key}={given_text(value)}" for value in near)
    return texts


# ---------------------------------------------------------------- rules


def _rule(question: _Question, name: str, near: Nearest) -> BrokenRule:
    """What is known of a rule or restriction by its id."""
    if name.startswith(SEARCH_PREFIX):
        return _restriction(question, name.removeprefix(SEARCH_PREFIX), name)
    values = question.values
    rule = next((rule for rule in rules_for(question.ctx) if rule.id == name), None)
    if rule is None:
        return BrokenRule(name, RULE_TEXTS[name], "definition", (), question.text(values), ())
    keys = tuple(key for key in rule.keys if key in values)
    return BrokenRule(
        id=rule.id,
        sentence=rule.sentence,
        source=rule.source,
        holds_for=holds_for(rule.id),
        value=question.text(keys or tuple(values)),
        nearest=tuple(text for key in keys for text in near.get(key, ())),
    )


def _broken(question: _Question, error: IllegalLayoutError, near: Nearest) -> BrokenRule:
    """A rule that the layout of the given keys breaks before any other is chosen."""
    values = question.values
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


def _restrictions(question: _Question, keys: tuple[str, ...]) -> tuple[BrokenRule, ...]:
    """The scenario's own restrictions that do not list given values."""
    search = question.scenario.search
    return tuple(
        _restriction(
            question,
            key,
            question.text((key,)),
            _nearest_listed(listed(search, key) or (), key, question.values[key]),
        )
        for key in keys
    )


def _restriction(
    question: _Question, key: str, value: str, nearest: tuple[str, ...] = ()
) -> BrokenRule:
    """What the scenario's search lists of a key, which leaves out `value`."""
    search = question.scenario.search
    allowed = ", ".join(map(given_text, listed(search, key) or ()))
    if getattr(search, key, None) is None:
        sentence = f"the default {key}={allowed} is taken unless search.{key} lists other values"
        return BrokenRule(SEARCH_RULE, sentence, "the table of layout keys", (), value, nearest)
    return BrokenRule(
        SEARCH_RULE, f"search: lists only {key} of {allowed}", "the scenario's search:", (),
        value, nearest,
    )  # fmt: skip


def _nearest_listed(choices: tuple[Any, ...], key: str, value: Any) -> tuple[str, ...]:
    """The listed numbers next to a value, or all that is listed."""
    if not isinstance(value, int) or isinstance(value, bool):
        return tuple(f"{key}={given_text(choice)}" for choice in choices)
    below = max((choice for choice in choices if choice < value), default=None)
    above = min((choice for choice in choices if choice > value), default=None)
    return tuple(f"{key}={choice}" for choice in (below, above) if choice is not None)


def holds_for(rule: str) -> tuple[str, ...]:
    """The shipped software profiles under which a rule holds; none where it holds under all."""
    if rule not in FRAMEWORK_RULES:
        return ()
    shipped = (load(name, "software", Software) for name in names("software"))
    return tuple(software.name for software in shipped if rule in software.rules)
