"""A layout the user gives: text or mapping, completed with what follows, checked by the rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Any

from planner.cost.context import CostContext
from planner.cost.stage_split import chunk_layers
from planner.cost.stages import layers_by_rank
from planner.errors import IllegalLayoutError, InputError
from planner.layouts.keys import KEYS, V_SHAPED, layout_key
from planner.layouts.layout import Layout
from planner.search.rules.context import a2a_sizes
from planner.search.rules.experts import can_overlap_dispatch, flex_members
from planner.search.rules.legality import broken_rules, by_chunks
from planner.search.space.restrictions import EXPERTS_NEED_MOE, WITHOUT_EXPERTS

GivenLayout = str | Mapping[str, Any] | Layout
"""A layout as text (`tp=8,pp=4`), as keys and values, or as the layout of a plan."""


def parse_layout(text: str, path: str = "--layout") -> dict[str, str]:
    """Keys and values of `tp=8,pp=4,…`.

    Raises:
        InputError: not of that form, or a key twice.
    """
    found: dict[str, str] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not value:
            raise InputError(
                f"{part!r} is not key=value", key=path, value=text,
                allowed="key=value,… with keys " + ", ".join(KEYS),
            )  # fmt: skip
        if key in found:
            raise InputError(f"{key} is given twice", key=path, value=text)
        found[key] = value
    return found


def layout_values(layout: GivenLayout, path: str = "--layout") -> Mapping[str, Any]:
    """The keys and values of a layout in any of its forms.

    Raises:
        InputError: it is in none of them.
    """
    if isinstance(layout, str):
        return parse_layout(layout, path)
    if isinstance(layout, Layout):  # through its keys: what does not apply has no value there
        return layout.to_document()
    if not isinstance(layout, Mapping) or not all(isinstance(key, str) for key in layout):
        raise InputError(
            f"{layout!r:.60} is no layout", path=path, value=layout,
            allowed="text such as tp=8,pp=4, a mapping of layout keys, or a Layout such as "
            "plan.layout",
        )  # fmt: skip
    return layout


def given_layout(ctx: CostContext, given: Mapping[str, Any], path: str = "--layout") -> Layout:
    """The layout of such keys and values, legal under the scenario's software.

    Degrees not given are 1, but dp takes what is left of the accelerators; companions follow the
    software's habits. Derived keys may be given and must agree.

    Raises:
        InputError: an unknown key, or a value of the wrong kind.
        IllegalLayoutError: a rule is broken, or derived keys disagree.
    """
    layout, broken = judged_layout(ctx, given, path)
    if broken:
        raise broken[0]
    assert layout is not None
    return layout


def given_values(given: Mapping[str, Any], path: str = "--layout") -> dict[str, Any]:
    """The keys that have a value, and their values as a Layout holds them.

    Raises:
        InputError: an unknown key, or a value of the wrong kind.
    """
    keys = {name: layout_key(name, path, value) for name, value in given.items()}
    return {
        name: keys[name].parse(value, path) for name, value in given.items() if value is not None
    }


def judged_layout(
    ctx: CostContext, given: Mapping[str, Any], path: str = "--layout"
) -> tuple[Layout | None, list[IllegalLayoutError]]:
    """The layout of such keys and values, and every rule it breaks; none where dp is no integer.

    Raises:
        InputError: an unknown key, or a value of the wrong kind.
    """
    values = given_values(given, path)
    try:
        layout = _completed(ctx, values)
    except IllegalLayoutError as error:
        return None, [error]
    no_experts = [] if ctx.model.moe is not None else _no_experts(layout, values)
    found = [*no_experts, *broken_rules(ctx, layout), *_disagreements(layout, values)]
    default = replace(layout, stage_layers=None)
    usual = [layers_by_rank(ctx.model.num_layers, default, ctx.reserved)]
    if by_chunks(layout):
        usual.append(chunk_layers(ctx.model.num_layers, default, ctx.reserved) or [])
    return default if list(layout.stage_layers or ()) in usual else layout, found


def _completed(ctx: CostContext, values: Mapping[str, Any]) -> Layout:
    """The layout of checked values, with what is not given."""
    software, n = ctx.software, ctx.num_accelerators
    tp, cp, pp = (values.get(axis, 1) for axis in ("tp", "cp", "pp"))
    if n % (tp * cp * pp) and not {"dp", "dp_shard", "dp_replicate"} & values.keys():
        raise _no_whole_dp(n, {"tp": tp, "cp": cp, "pp": pp})
    left = n // (tp * cp * pp)
    dp = values.get("dp")
    if dp is None:
        both = "dp_shard" in values and "dp_replicate" in values
        dp = values["dp_shard"] * values["dp_replicate"] if both else max(left, 1)
    replicate = values.get("dp_replicate")
    shard = values.get("dp_shard", max(dp // replicate, 1) if replicate else dp)
    replicate = replicate if replicate is not None else max(dp // shard, 1)
    mbs = values.get("mbs", 1)
    defaults = {key.name: key.default for key in KEYS.values() if not key.derived} | {
        "dp_shard": shard,
        "dp_replicate": replicate,
        "vp": 2 if values.get("schedule") in V_SHAPED else 1,
        "num_microbatches": max(ctx.training.global_batch_size // max(mbs * dp, 1), 1),
        "zero_stage": 1 if 1 in software.zero_stages else max(software.zero_stages),
        "sp": tp > 1 and software.sequence_parallel == "always",
        "cp_kind": software.cp_kinds[0],
        "cp_a2a": default_a2a(ctx, tp, cp, values.get("cp_kind")),
        "dispatcher": default_dispatcher(ctx, values),
    }
    # derived ones and those that the batch decides are checked against the layout, not taken
    decided = ("dp", "edp", "dp_shard", "dp_replicate", "num_microbatches")
    given = {name: value for name, value in values.items() if name not in decided}
    layout = Layout(**defaults | given)
    if "overlap" not in values:
        layout = replace(layout, overlap=default_overlap(ctx, layout))
    return layout


def _no_whole_dp(n: int, degrees: Mapping[str, int]) -> IllegalLayoutError:
    product = prod(degrees.values())
    nearest = []
    for axis, degree in degrees.items():
        others = product // degree
        fits = [v for v in range(1, n // others + 1) if n % (others * v) == 0] if degree > 1 else []
        below = [v for v in fits if v < degree][-1:]
        nearest += [f"{axis}={v}" for v in below + [v for v in fits if v > degree][:1]]
    return IllegalLayoutError(
        rule="world-size",
        source="definition",
        value=", ".join(f"{axis}={degree}" for axis, degree in degrees.items()),
        message=f"tp·cp·pp·dp is the number of accelerators, {n}, which {product} does not divide",
        nearest=tuple(nearest),
    )


def default_overlap(ctx: CostContext, layout: Layout) -> str:
    """What the software runs beside computation, as far as the model and layout let it."""
    excluded = () if can_overlap_dispatch(ctx, layout) else ("ep",)
    return "+".join(name for name in ctx.software.overlap if name not in excluded) or "none"


def default_a2a(ctx: CostContext, tp: int, cp: int, kind: str | None) -> int:
    """Inner degree of hierarchical context parallelism: the largest that the heads allow."""
    if kind != "hierarchical":
        return 1
    divisors = (a for a in range(2, cp) if cp % a == 0)
    return max(a2a_sizes(ctx, tp, cp), default=next(divisors, 1))


def default_dispatcher(ctx: CostContext, values: Mapping[str, Any]) -> str:
    """The software's first that reaches all of an expert group; where no token travels alltoall."""
    ep = values.get("ep", 1)
    if ep == 1:
        return Layout().dispatcher
    able = (d for d in ctx.software.dispatchers if d != "flex" or ep <= flex_members(ctx.topology))
    return next(able, next(iter(ctx.software.dispatchers), Layout().dispatcher))


def _no_experts(layout: Layout, values: Mapping[str, Any]) -> list[IllegalLayoutError]:
    return [
        IllegalLayoutError(
            rule=EXPERTS_NEED_MOE,
            source="definition",
            value=f"{key}={getattr(layout, key)}",
            message=WITHOUT_EXPERTS,
            nearest=(f"{key}={getattr(Layout(), key)}",),
        )
        for key in ("ep", "etp", "dispatcher")
        if key in values and values[key] != getattr(Layout(), key)
    ]


def _disagreements(layout: Layout, values: Mapping[str, Any]) -> list[IllegalLayoutError]:
    return [
        IllegalLayoutError(
            rule="derived-keys-agree",
            source="definition",
            value=f"{key}={value}",
            message=f"{key} follows from the other keys",
            nearest=(f"{key}={getattr(layout, key)}",),
        )
        for key, value in values.items()
        if getattr(layout, key, value) != value
    ]
