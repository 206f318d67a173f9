"""Random legal plans of shipped models, and illegal layouts: for the frameworks' own parsers."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from planner.cost.context import CostContext
from planner.errors import IllegalLayoutError
from planner.frameworks.target import target
from planner.layouts.grids import EXPERT_GRID, atom_degree
from planner.layouts.keys import CP_KINDS, OVERLAPS, RECOMPUTE
from planner.layouts.layout import Layout, LayoutTable
from planner.layouts.rank_orders import order_atoms
from planner.planning.plan import Plan
from planner.problem.scenario import Scenario, inputs_sha256, load_scenario, scenario_to_document
from planner.search.rules.legality import check
from planner.search.space.enumerate import layouts

Choice = tuple[str, int, int, str]
"""Model, accelerators, global batch, precision."""


@cache
def scenario(model: str, accelerators: int, batch: int, precision: str, software: str) -> Scenario:
    """A job of a shipped model on DGX H100s, B200s where the precision needs them."""
    blackwell = precision in ("mxfp8", "nvfp4")
    return load_scenario(
        "llama3-8b-h100x8",
        {
            "model": model, "topology": "dgx-b200" if blackwell else "dgx-h100",
            "num_accelerators": str(accelerators), "software": software,
            "training.global_batch_size": str(batch), "training.precision": precision,
            "training.sequence_length": "2048", "search.mbs": "[1, 2, 4]",
        },
    )  # fmt: skip


@cache
def table(
    given: Choice, software: str, target_name: str | None = None
) -> tuple[CostContext, LayoutTable]:
    """Legal layouts of a job; of a target, those whose values its table has words for."""
    ctx = CostContext.of(scenario(*given, software))
    rows, _ = layouts(ctx, scenario(*given, software).search, prune=False)
    if target_name is None:
        return ctx, rows
    to = target(target_name)
    kept = np.ones(len(rows), dtype=bool)
    for key, allowed in to.limits.items():
        kept &= np.isin(getattr(rows, key), allowed)
    kept &= np.isin(rows.zero_stage, [int(value) for value in to.codes["zero_stage"]])
    named = [RECOMPUTE.index(value) for value in to.codes["recompute"]]
    return ctx, rows.take(kept & np.isin(rows.recompute_index, named))


def random_plans(
    choices: Sequence[Choice],
    software: str,
    count: int,
    seed: int,
    vary_overlap: bool = True,
    target_name: str | None = None,
) -> Iterator[Plan]:
    """Plans of legal layouts, drawn over the choices in turn, each in one of the software's orders.

    Companions that the search leaves at their habits are drawn too: overlaps, cp kinds, counts.
    """
    draw = random.Random(seed)
    for number in range(count):
        given = choices[number % len(choices)]
        ctx, rows = table(given, software, target_name)
        layout = rows.row(draw.randrange(len(rows)))
        if vary_overlap:
            layout = _varied(ctx, layout, draw)
        axes = draw.choice(list(ctx.software.orders.values()))
        yield plan_of(scenario(*given, software), layout, axes)


def _varied(ctx: CostContext, layout: Layout, draw: random.Random) -> Layout:
    overlap = "+".join(n for n in OVERLAPS if n in ctx.software.overlap and draw.random() < 0.7)
    kind = draw.choice(CP_KINDS) if layout.cp > 1 else layout.cp_kind
    counted = draw.randint(0, 3) if layout.recompute == "full" else 0
    varied = replace(layout, overlap=overlap or "none", cp_kind=kind, recompute_layers=counted)
    try:
        check(ctx, varied)
    except IllegalLayoutError:
        return layout
    return varied


def plan_of(given: Scenario, layout: Layout, axes: Sequence[str]) -> Plan:
    """The plan of a layout in a rank order (innermost axis first), without its costs."""
    document = scenario_to_document(given)
    order = tuple(
        (atom, int(atom_degree(layout, atom, EXPERT_GRID)))
        for atom in order_atoms(axes, EXPERT_GRID)
        if int(atom_degree(layout, atom, EXPERT_GRID)) > 1
    )
    return Plan(
        inputs=document,
        inputs_sha256=inputs_sha256(document),
        status="feasible",
        layout=layout,
        rank_order=order,
    )
