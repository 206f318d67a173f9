"""Judging one layout by the rules: the first one broken, and the nearest values that keep it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from planner.cost.context import CostContext
from planner.cost.stage_split import given_stages
from planner.errors import IllegalLayoutError
from planner.frameworks.rule import Rule
from planner.layouts.keys import V_SHAPED
from planner.layouts.layout import Layout
from planner.search.rules.catalog import rules_for


def check(ctx: CostContext, layout: Layout) -> None:
    """Raise for the first rule a layout breaks, with the nearest values that keep it.

    Raises:
        IllegalLayoutError: a rule is broken.
    """
    for error in broken_rules(ctx, layout):
        raise error


def broken_rules(ctx: CostContext, layout: Layout) -> Iterator[IllegalLayoutError]:
    """Every rule a layout breaks, with the nearest values that keep it."""
    for rule in rules_for(ctx):
        if not bool(np.all(rule.holds(ctx, layout))):
            key = rule.keys[0]
            yield IllegalLayoutError(
                rule=rule.id,
                source=rule.source,
                value=", ".join(f"{k}={getattr(layout, k)}" for k in rule.keys),
                message=rule.sentence,
                nearest=nearest_values(ctx, layout, rule, key),
            )
    if layout.stage_layers is not None and not split_holds(ctx, layout):
        yield IllegalLayoutError(
            rule="stage-layers",
            source="NVIDIA/Megatron-LM#1304",
            value="stage_layers=" + "+".join(map(str, layout.stage_layers)),
            message=f"stage_layers has pp={layout.pp} positive entries that sum to "
            f"{ctx.model.num_layers} layers"
            + (f", or pp·vp={layout.pp * layout.vp} of chunks" if by_chunks(layout) else ""),
            nearest=(),
        )


def by_chunks(layout: Layout) -> bool:
    """Whether a stage split may be given by chunks: a rank has several, all in model order."""
    return layout.vp > 1 and layout.schedule not in V_SHAPED


def split_holds(ctx: CostContext, layout: Layout) -> bool:
    """Whether the split that is given has all layers, and some on every stage."""
    split = layout.stage_layers or ()
    if len(split) != layout.pp and not (by_chunks(layout) and len(split) == layout.pp * layout.vp):
        return False
    complete = sum(split) == ctx.model.num_layers and min(split) >= 0
    return bool(complete and min(given_stages(layout)) > 0)


MOST_TRIED = 4096
"""Values tried for a hint, so that an absurd one is answered at once."""


def nearest_values(ctx: CostContext, layout: Layout, rule: Rule, key: str) -> tuple[str, ...]:
    """The nearest smaller and greater values of `key` that keep `rule`, others unchanged."""
    now = getattr(layout, key)
    # nothing is nearest of a name or a switch; micro-batches follow from the others
    if isinstance(now, bool) or not isinstance(now, int) or key == "num_microbatches":
        return ()

    def kept(value: int) -> bool:
        return bool(np.all(rule.holds(ctx, _changed(ctx, layout, key, value))))

    most = min(max(2 * now, 8), MOST_TRIED)
    below = next((v for v in range(min(now - 1, MOST_TRIED), 0, -1) if kept(v)), None)
    above = next((v for v in range(now + 1, most + 1) if kept(v)), None)
    return tuple(f"{key}={v}" for v in (below, above) if v is not None)


def _changed(ctx: CostContext, layout: Layout, key: str, value: int) -> Layout:
    changes: dict[str, Any] = {key: value}
    if key == "dp":  # dp is derived: its factors are what a layout has
        changes = {"dp_shard": value, "dp_replicate": 1}
    changed = replace(layout, **changes)
    if key not in ("dp", "mbs"):
        return changed
    # with another dp or mbs the same batch has other micro-batches
    batch = max(ctx.training.global_batch_size // max(changed.mbs * changed.dp, 1), 1)
    return replace(changed, num_microbatches=batch)
