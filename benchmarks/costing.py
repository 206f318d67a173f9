"""Layouts costed per CPU-second, with the full breakdown and memory: one table against a loop.

    python benchmarks/costing.py [SCENARIO] [--rows N]

Both sides cost the same layouts in the software's own rank order, in one run, interleaved; the
table in blocks that fit the caches, the loop by calling the same step with plain numbers. Times
are CPU seconds of this process, the best of five.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

from planner.api import load_scenario
from planner.cost import memory, step
from planner.cost.context import CostContext
from planner.layouts.layout import LayoutTable
from planner.problem.fills import fills
from planner.search.layout_problem import LayoutProblem, splits_of
from planner.search.placement import order_placements
from planner.search.space.enumerate import layouts

BLOCK = 16384


def candidates(ctx: CostContext, num_rows: int) -> tuple[LayoutTable, np.ndarray]:
    """Legal layouts of the scenario and their placements in the software's first order."""
    from planner.problem.scenario import Search

    table, _ = layouts(ctx, Search(cp_kind=ctx.software.cp_kinds[:1]))
    problem = LayoutProblem(ctx, table)
    fill = fills(problem.widths, ctx.num_accelerators)[0]
    placed, nested = order_placements(problem.degrees, problem.framework_orders(0)[0], fill)
    rows = np.flatnonzero(nested)
    chosen = np.resize(np.random.default_rng(0).permutation(rows), num_rows)
    return table.take(chosen), placed[chosen]


def cost_table(ctx: CostContext, table: LayoutTable, placed: np.ndarray) -> float:
    """Cost all rows in blocks; the sum of their steps and peaks, so that nothing is skipped."""
    total = 0.0
    for start in range(0, len(table), BLOCK):
        block = slice(start, start + BLOCK)
        rows = table.take(block)
        total += float(step.evaluate(ctx, rows, splits_of(placed[block])).total.sum())
        total += float(memory.worst_stage(ctx, rows)[1].sum())
    return total


def cost_loop(ctx: CostContext, table: LayoutTable, placed: np.ndarray) -> float:
    """The same, one layout after another."""
    total = 0.0
    for i in range(len(table)):
        layout = table.row(i)
        splits = {k: [float(g) for g in v] for k, v in splits_of(placed[i]).items()}
        total += float(step.evaluate(ctx, layout, splits).total)
        total += float(memory.worst_stage(ctx, layout)[1])
    return total


def cpu_seconds(run: Callable[[], float]) -> float:
    """CPU seconds of one run."""
    start = time.process_time()
    run()
    return time.process_time() - start


def main() -> None:
    """Print both rates and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenario", nargs="?", default="llama3-405b-h100x16384")
    parser.add_argument("--rows", type=int, default=200_000)
    arguments = parser.parse_args()
    ctx = CostContext.of(load_scenario(arguments.scenario))
    table, placed = candidates(ctx, arguments.rows)
    few = slice(0, 500)
    assert np.isclose(
        cost_table(ctx, table.take(few), placed[few]),
        cost_loop(ctx, table.take(few), placed[few]),
        rtol=1e-12,
    )
    fast, slow = [], []
    for _ in range(5):
        fast.append(cpu_seconds(lambda: cost_table(ctx, table, placed)))
        slow.append(cpu_seconds(lambda: cost_loop(ctx, table.take(few), placed[few])))
    table_rate, loop_rate = len(table) / min(fast), 500 / min(slow)
    print(f"table  {table_rate:12,.0f} layouts per CPU-second ({len(table):,} rows)")
    print(f"loop   {loop_rate:12,.0f} layouts per CPU-second")
    print(f"ratio  {table_rate / loop_rate:12,.0f}")


if __name__ == "__main__":
    main()
