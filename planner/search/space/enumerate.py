"""Every legal layout of a scenario, as a table, and counts of what was ruled out and why.

Columns are added one choice after another; a rule applies as soon as all its keys are there, so
that what it rules out is never multiplied by later choices.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import gcd
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.cost.context import CostContext
from planner.frameworks.rule import Rule
from planner.layouts.arrays import distinct_rows
from planner.layouts.keys import CP_KINDS, DISPATCHERS, KEYS, RECOMPUTE, SCHEDULES, Choice
from planner.layouts.layout import Layout, LayoutTable
from planner.problem.blocks import MoE
from planner.problem.scenario import Search
from planner.search.rules.catalog import rules_for
from planner.search.rules.context import a2a_sizes
from planner.search.rules.experts import can_overlap_dispatch
from planner.search.rules.recompute import FULL
from planner.search.rules.schedules import MANY, schedules_by_chunks
from planner.search.rules.structural import max_chunks
from planner.search.space import crossings
from planner.search.space.crossings import AXES, divisors, overlaps_exchanges
from planner.search.space.limits import MOST_UNRULED, TooManyRowsError, may_fit
from planner.search.space.recompute import (
    chooses_counts,
    fits_without_recompute,
    searched_kinds,
    with_counts,
)
from planner.search.space.restrictions import EXPERTS_NEED_MOE, allowed, key_of, listed

Ints = NDArray[np.int64]

SEARCH_RULE = "search"
"""Id under which layouts outside the scenario's `search:` restrictions are counted."""

MEMORY_RULE = "memory"
"""Id under which layouts are counted that do not fit in memory."""

NESTED_RULE = "grids-nest"
"""Id under which layouts are counted whose expert groups cut across the dense ones. They can be
evaluated, in a framework's own rank order, but have no placements of their own to search."""


def layouts(
    ctx: CostContext, search: Search, prune: bool = True, ruled: bool = True
) -> tuple[LayoutTable, Counter[str]]:
    """All layouts that keep every rule and restriction, and how many each rule ruled out.

    With `prune`, layouts with experts that cannot fit in memory are left out on the way (and
    counted), so that there are not many times as many.

    Not `ruled`, all that keep the restrictions and the definitions of degrees and batch, whatever
    rules they break; TooManyRowsError where they are more than can be looked at.

    Counts are of partial layouts: a rule counts what it stopped where it could be judged.
    """
    table, excluded = families(ctx, search, prune, ruled)
    for stage in (kinds, members):
        table, more = stage(ctx, search, table, prune, ruled)
        excluded += more
    return table, excluded


def families(
    ctx: CostContext, search: Search, prune: bool = True, ruled: bool = True
) -> tuple[LayoutTable, Counter[str]]:
    """Layouts but for KIND_KEYS and MEMBER_KEYS: context parallelism has no kind yet, nothing is
    recomputed, and dispatch and combine do not overlap."""
    growth = _Growth(ctx, search, prune, ruled)
    n = ctx.num_accelerators
    growth.add("tp", lambda row: divisors(n), ())
    growth.add("cp", lambda row: divisors(n // row[0]), ("tp",))
    growth.add("pp", lambda row: divisors(n // (row[0] * row[1])), ("tp", "cp"))
    whole = n // (growth.table.tp * growth.table.cp * growth.table.pp)
    growth.set("dp_shard", whole, restrict=False)
    growth.restrict("dp", whole)
    growth.split_batch()
    growth.add("vp", lambda row: range(1, max(1, max_chunks(ctx, np.inf) // row[0]) + 1), ("pp",))
    growth.split_schedules()
    growth.add("zero_stage", lambda row: ctx.software.zero_stages, ())
    growth.add_defaults()
    if ctx.software.shard_groups == "any":
        growth.split_shards()
    growth.restrict("dp_shard", growth.table.dp_shard)
    growth.restrict("dp_replicate", growth.table.dp_replicate)
    growth.judge("dp_replicate", "dp_shard")
    if ctx.model.moe is None:
        growth.keep_canonical_zero()
    growth.add("sp", lambda row: (0, 1) if row[0] > 1 else (0,), ("tp",))
    if ctx.model.moe is not None:
        growth.split_experts(ctx.model.moe)
        growth.keep_canonical_zero()  # experts' states may be shared where the others' are not
    else:
        growth.refuse_experts()
    growth.split_overlaps()
    growth.finish()
    return growth.table, growth.excluded


KIND_KEYS = frozenset({"cp_kind", "cp_a2a"})
MEMBER_KEYS = frozenset({"recompute", "recompute_layers", "overlap_ep"})
"""What tells the layouts of one family apart, and then those of one kind: choices that trade time
against memory, or may not pay, and change neither groups nor parameters."""


def kinds(
    ctx: CostContext, search: Search, table: LayoutTable, prune: bool = True, ruled: bool = True
) -> tuple[LayoutTable, Counter[str]]:
    """The families of a table in every kind of context parallelism, and what rules ruled out."""
    growth = _Growth(ctx, search, prune, ruled, table, KIND_KEYS)
    growth.split_cp_kinds(search.cp_kind or ctx.software.cp_kinds)
    growth.finish()
    return growth.table, growth.excluded


def members(
    ctx: CostContext, search: Search, table: LayoutTable, prune: bool = True, ruled: bool = True,
    spared: bool = False,
) -> tuple[LayoutTable, Counter[str]]:  # fmt: skip
    """All layouts of the families of a kind in a table, and how many each rule ruled out.

    spared: instead those left out because without recompute they fit, in the default split.
    """
    growth = _Growth(ctx, search, prune, ruled, table, MEMBER_KEYS)
    growth.split_recompute(spared)
    if overlaps_exchanges(ctx, search):
        growth.split_dispatch_overlap()
    growth.count_layers()
    growth.finish()
    return growth.table, growth.excluded


def _stage(rule: Rule) -> frozenset[str]:
    """The keys of the stage at which a rule can be judged; none of families."""
    keys = set(rule.keys)
    return next((stage for stage in (MEMBER_KEYS, KIND_KEYS) if keys & stage), frozenset())


def _of_any_row(codes: Sequence[int], row: Any) -> Sequence[int]:
    return codes


_DEFAULTS = LayoutTable.uniform(Layout())
"""One layout, whose columns stay one value until a choice is added."""


class _Growth:
    """A table of partial layouts that grows by one choice at a time: from nothing to families, from
    these to their kinds, from these to their members."""

    def __init__(
        self,
        ctx: CostContext,
        search: Search,
        prune: bool,
        ruled: bool,
        table: LayoutTable = _DEFAULTS,
        stage: frozenset[str] = frozenset(),
    ) -> None:
        self.ctx = ctx
        self.search = search
        self.prune = prune
        self.ruled = ruled
        self.table = table
        self.excluded: Counter[str] = Counter()
        known = rules_for(ctx) if ruled else ()
        self.pending: list[Rule] = [rule for rule in known if _stage(rule) == stage]
        keys = {key for rule in self.pending for key in rule.keys}
        self.present: set[str] = keys - stage if stage else set()

    def add(
        self,
        name: str,
        choices: Callable[[Any], Sequence[int] | range],
        depends: tuple[str, ...],
        restrict: bool = True,
    ) -> None:
        """Cross the rows with `choices(the row's values of depends)`."""
        if not len(self.table):
            self.present.add(name)
            return
        known = [getattr(self.table, d) for d in depends]
        self._cross(name, choices, known or [np.zeros(len(self.table), np.int64)], restrict)

    def _cross(
        self,
        name: str,
        choices: Callable[[Any], Sequence[int] | range],
        known: Sequence[Ints],
        restrict: bool,
    ) -> None:
        """Cross the rows with `choices(what is known of the row)`, in columns."""
        if not len(self.table):
            self.present.add(key_of(name))
            return
        first, position = distinct_rows(known)
        keys = zip(*(column[first].tolist() for column in known), strict=True)
        options = [np.fromiter(choices(key), np.int64) for key in keys]
        lengths = np.array([len(option) for option in options])
        counts = lengths[position]
        if not self.ruled and counts.sum() > MOST_UNRULED:
            raise TooManyRowsError(int(counts.sum()))
        rows = np.repeat(np.arange(len(self.table)), counts)
        # of a row's options the first, the second, …: its place among its copies
        place = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        values = np.concatenate(options)[(np.cumsum(lengths) - lengths)[position[rows]] + place]
        self.table = self.table.take(rows)
        self.set(name, values, restrict)

    def set(self, name: str, values: Ints, restrict: bool = True) -> None:
        """Set a column, then drop rows that a restriction or a rule now forbids."""
        changes: dict[str, Any] = {name: values}
        self.table = replace(self.table, **changes)
        if restrict:
            self.restrict(name, values)
        self.judge(name)

    def restrict(self, name: str, values: Ints) -> None:
        """Drop rows whose choice the scenario's `search:` does not list."""
        wanted = allowed(self.search, name)
        if wanted is not None:
            self._keep(np.isin(values, wanted), SEARCH_RULE)

    def add_defaults(self) -> None:
        """Cross with what `search:` lists of the keys that otherwise keep their defaults."""
        for key in KEYS.values():
            if key.choice is Choice.DEFAULT:
                codes = [key.code(value) for value in listed(self.search, key.name) or ()]
                if codes != [key.code(key.default)]:
                    self.add(key.column, partial(_of_any_row, codes), (), restrict=False)
                self.judge(key.column)

    def split_batch(self) -> None:
        """Cross with the ways to cut each batch that may be chosen into micro-batches."""
        least, most = self.ctx.training.batch_range
        self.add("mbs", lambda row: crossings.microbatch_sizes(least, most, row[0]), ("dp_shard",))
        counts = partial(crossings.microbatch_counts, least, most)
        self.add("num_microbatches", lambda row: counts(*row), ("dp_shard", "mbs"))
        self.judge("num_microbatches", "dp")

    def split_overlaps(self) -> None:
        """Set what runs beside computation: all that the software has, or each set asked for."""
        sets = crossings.sets_of(self.ctx, self.search)
        if len(sets) > 1 and len(self.table):
            live = crossings.live_axes(self.table)
            self._cross("overlap_tp", lambda row: crossings.distinct_sets(sets, row), live, False)
        number = self.table.overlap_tp
        columns = {f"overlap_{name}": sets[number, i] for i, name in enumerate(AXES)}
        self.table = replace(self.table, **columns)

    def split_schedules(self) -> None:
        """Cross with the software's schedules of so many chunks a rank."""
        known, alone = schedules_by_chunks(self.ctx.software), [SCHEDULES.index("1f1b")]

        def choices(row: Any) -> Sequence[int]:
            pp, vp = row
            return known.get(vp, known[MANY]) if pp > 1 or vp > 1 else alone

        if self.ctx.software.only_1f1b:  # virtual stages decide
            self.set("schedule_index", 1 * (self.table.vp > 1), restrict=False)
        else:
            self.add("schedule_index", choices, ("pp", "vp"), restrict=False)
        wanted = self.search.schedule
        if wanted is not None:
            codes = [SCHEDULES.index(name) for name in wanted]
            self._keep(np.isin(self.table.schedule_index, codes), SEARCH_RULE)

    def judge(self, *names: str) -> None:
        """Apply the rules whose keys are all present."""
        self.present.update(key_of(name) for name in names)
        ready = [r for r in self.pending if set(r.keys) <= self.present]
        self.pending = [r for r in self.pending if r not in ready]
        for rule in ready:
            if len(self.table):
                holds = np.broadcast_to(rule.holds(self.ctx, self.table), (len(self.table),))
                self._keep(holds, rule.id)

    def split_shards(self) -> None:
        """Cross with every way to shard states over part of the data-parallel ranks."""

        def groups(row: Any) -> Sequence[int]:
            dp, zero_stage = row
            return divisors(dp) if zero_stage else [dp]

        self.add("dp_shard", groups, ("dp_shard", "zero_stage"))
        table = self.table
        ranks = self.ctx.num_accelerators // (table.tp * table.cp * table.pp)
        self.set("dp_replicate", ranks // table.dp_shard)

    def split_experts(self, moe: MoE) -> None:
        """Cross with every expert-tensor degree that divides tp, and every expert degree.

        What no degrees and no recomputation would make fit is left out before.
        """
        t = self.table
        best = replace(t, ep=np.full(len(t), moe.num_experts), etp=t.tp)
        self._drop_too_big(best)

        def thinner(row: Any) -> Sequence[int]:
            return divisors(row[0])

        def wider(row: Any) -> Sequence[int]:
            tp, cp, dp_shard, etp = row
            return divisors(gcd(moe.num_experts, tp * cp * dp_shard // etp))

        self.add("etp", thinner, ("tp",))
        self.add("ep", wider, ("tp", "cp", "dp_shard", "etp"))
        table = self.table
        inside = table.tp * table.cp * table.dp_shard
        self.restrict("edp", inside * table.dp_replicate // (table.etp * table.ep))
        if self.ruled:
            self._keep(self.table.grids_nest, NESTED_RULE)
        wanted = self.search.dispatcher or self.ctx.software.dispatchers
        codes = [DISPATCHERS.index(name) for name in wanted] or [0]
        self.add(
            "dispatcher_index", lambda row: codes if row[0] > 1 else (0,), ("ep",), restrict=False
        )
        self._drop_too_big(self.table)

    def refuse_experts(self) -> None:
        """Drop all rows where `search:` asks for expert degrees of a model that has none."""
        for key in ("ep", "etp"):
            wanted = allowed(self.search, key)
            if wanted is not None and 1 not in wanted:
                self._keep(np.zeros(len(self.table), dtype=bool), EXPERTS_NEED_MOE)
        self.restrict("edp", self.table.edp)

    def split_cp_kinds(self, names: Sequence[str]) -> None:
        """Cross with kinds of context parallelism, the hierarchical with its inner degrees."""
        kinds = [CP_KINDS.index(name) for name in names]
        self.add(
            "cp_kind_index", lambda row: kinds if row[0] > 1 else (0,), ("cp",), restrict=False
        )
        hierarchical = CP_KINDS.index("hierarchical")
        if hierarchical not in kinds:
            self.judge("cp_a2a")
            return

        def inner(row: Any) -> Sequence[int]:
            kind, tp, cp = row
            return a2a_sizes(self.ctx, tp, cp) if kind == hierarchical else [1]

        self.add("cp_a2a", inner, ("cp_kind_index", "tp", "cp"), restrict=False)
        if self.search.cp_a2a is not None:
            other = self.table.cp_kind_index != hierarchical
            self._keep(other | np.isin(self.table.cp_a2a, self.search.cp_a2a), SEARCH_RULE)

    def split_recompute(self, spared: bool) -> None:
        """Cross with the recompute kinds that can matter, or with those that are spared.

        With experts there are many, and each only trades time for memory: a layout that fits with
        none needs no other, for none is fastest (unless the objective is the lowest memory).
        """
        known = [RECOMPUTE.index(name) for name in crossings.recompute_kinds(self.ctx)]
        kinds, none = searched_kinds(self.ctx, self.search), RECOMPUTE.index("none")
        by_memory = self.search.objective == "least_memory"
        if self.ctx.model.moe is None or none not in kinds or not len(self.table) or by_memory:
            self.add("recompute_index", lambda row: () if spared else known, ())
            return
        others = [kind for kind in kinds if kind != none]
        options = {0: [], 1: others} if spared else {0: kinds, 1: [none]}
        code = 1 * fits_without_recompute(self.ctx, self.search, self.table)
        self._cross("recompute_index", lambda row: options[row[0]], [code], True)

    def split_dispatch_overlap(self) -> None:
        """Cross with overlap of dispatch and combine with another micro-batch, where possible."""
        able = can_overlap_dispatch(self.ctx, self.table).astype(np.int64)
        known = [able] if self.search.overlap is None else [able, *crossings.of_axes(self.table)]
        choices = partial(crossings.dispatch_overlap_choices, self.search)
        self._cross("overlap_ep", lambda row: choices(row[1:]) if row[0] else (0,), known, False)

    def count_layers(self) -> None:
        """Cross with the counts of layers asked for; or with those that matter, if any may."""
        if (counts := self.search.recompute_layers) is not None:
            known = [1 * (self.table.recompute_index == FULL)]
            self._cross("recompute_layers", lambda row: counts if row[0] else (0,), known, True)
        elif self.prune and self.ruled and chooses_counts(self.ctx, self.search):
            self.table = with_counts(self.ctx, self.search, self.table)

    def _drop_too_big(self, smallest: LayoutTable) -> None:
        """Drop rows that cannot fit as the rows of `smallest`, however much is recomputed."""
        if self.prune:
            self._keep(may_fit(self.ctx, self.search, smallest), MEMORY_RULE)

    def keep_canonical_zero(self) -> None:
        """Where no states are shared keep only the lowest ZeRO stage that may be."""
        self.table = self.table.take(crossings.canonical_zero(self.ctx, self.search, self.table))

    def finish(self) -> None:
        """Apply what is left."""
        self.judge(*(key for rule in self.pending for key in rule.keys))

    def _keep(self, mask: Any, rule: str) -> None:
        dropped = int(np.count_nonzero(~mask))
        if dropped:
            self.excluded[rule] += dropped
            self.table = self.table.take(mask)
