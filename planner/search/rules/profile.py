"""Rules that a software profile states as lists and switches instead of by a rule's id."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from planner.cost.context import CostContext
from planner.frameworks.rule import Rule, divides, runs
from planner.layouts.keys import CP_KINDS, DISPATCHERS, OFFLOADS
from planner.layouts.layout import LayoutLike
from planner.layouts.numeric import Boolean, Integer, Mask
from planner.problem.software import Software


@dataclass(frozen=True, slots=True)
class _ProfileRule:
    """A rule that is complete once the profile is known: when it applies, and what it allows.

    sentence: may have `{listed}`, the values that the profile lists.
    """

    id: str
    sentence: str
    keys: tuple[str, ...]
    holds: Callable[[CostContext, LayoutLike], Boolean]
    applies: Callable[[Software], bool] = lambda software: True
    listed: Callable[[Software], Sequence[object]] = lambda software: ()

    def of(self, software: Software) -> Rule:
        """The rule of a profile."""
        values = ", ".join(map(str, self.listed(software)))
        source = f"software profile {software.name}"
        return Rule(self.id, self.sentence.format(listed=values), source, self.keys, self.holds)


def _offloads(software: Software) -> tuple[str, ...]:
    return ("none", *software.offloads)


def _is_one_of(index: Integer, names: Sequence[str], known: Sequence[str]) -> Mask:
    """Whether the index of a name among all of its kind is that of one of some names."""
    return np.isin(index, [known.index(name) for name in names])


_RULES = (
    _ProfileRule(
        "zero-stage",
        "zero_stage is one of {listed}",
        ("zero_stage",),
        lambda ctx, x: np.isin(x.zero_stage, ctx.software.zero_stages),
        listed=lambda software: software.zero_stages,
    ),
    _ProfileRule(
        "schedule",
        "the schedule is one of {listed}",
        ("vp", "pp", "schedule"),
        lambda ctx, x: (
            # without a pipeline there is no schedule, which layouts write as 1f1b
            ((np.asarray(x.pp) == 1) & runs(x, "1f1b")) | runs(x, *ctx.software.schedules)
        ),
        listed=lambda software: software.schedules,
    ),
    _ProfileRule(
        "cp-kind",
        "cp_kind is one of {listed}",
        ("cp_kind", "cp"),
        lambda ctx, x: (
            (np.asarray(x.cp) == 1) | _is_one_of(x.cp_kind_index, ctx.software.cp_kinds, CP_KINDS)
        ),
        listed=lambda software: software.cp_kinds,
    ),
    _ProfileRule(
        "offload",
        "offload is one of {listed}",
        ("offload",),
        lambda ctx, x: _is_one_of(x.offload_index, _offloads(ctx.software), OFFLOADS),
        listed=_offloads,
    ),
    _ProfileRule(
        "shard-group",
        "states shard over the whole data-parallel group",
        ("dp_replicate",),
        lambda ctx, x: (np.asarray(x.dp_replicate) == 1) | (np.asarray(x.zero_stage) == 0),
        applies=lambda software: software.shard_groups == "full",
    ),
    _ProfileRule(
        "dispatcher",
        "the dispatcher is one of {listed}",
        ("dispatcher", "ep"),
        lambda ctx, x: (
            (np.asarray(x.ep) == 1)
            | _is_one_of(x.dispatcher_index, ctx.software.dispatchers, DISPATCHERS)
        ),
        applies=lambda software: bool(software.dispatchers),
        listed=lambda software: software.dispatchers,
    ),
    _ProfileRule(
        "no-expert-parallelism",
        "the framework has no expert parallelism",
        ("ep", "etp"),
        lambda ctx, x: (np.asarray(x.ep) == 1) & (np.asarray(x.etp) == 1),
        applies=lambda software: not software.dispatchers,
    ),
    _ProfileRule(
        "recompute-counts",
        "the framework recomputes layers in all chunks alike, not the first of each",
        ("recompute_layers",),
        lambda ctx, x: np.asarray(x.recompute_layers) == 0,
        applies=lambda software: not software.recompute_counts,
    ),
    _ProfileRule(
        "no-loss-chunks",
        "the framework computes the loss of all tokens at once",
        ("loss_chunks",),
        lambda ctx, x: np.asarray(x.loss_chunks) == 1,
        applies=lambda software: not software.loss_chunks,
    ),
    _ProfileRule(
        "loss-chunks-divide",
        "sequence_length/cp is a multiple of loss_chunks",
        ("loss_chunks", "cp"),
        lambda ctx, x: divides(x.loss_chunks * x.cp, ctx.training.sequence_length),
        applies=lambda software: software.loss_chunks,
    ),
    _ProfileRule(
        "sp-always",
        "sequence parallelism is on wherever tp > 1",
        ("sp", "tp"),
        lambda ctx, x: (np.asarray(x.sp) > 0) == (np.asarray(x.tp) > 1),
        applies=lambda software: software.sequence_parallel == "always",
    ),
    _ProfileRule(
        "sp-never",
        "sequence parallelism is off",
        ("sp", "tp"),
        lambda ctx, x: np.asarray(x.sp) == 0,
        applies=lambda software: software.sequence_parallel == "never",
    ),
)


def profile_rules(software: Software) -> tuple[Rule, ...]:
    """The rules that a profile's lists and switches make."""
    return tuple(rule.of(software) for rule in _RULES if rule.applies(software))
