"""The proven search against costing every row of the same space, and its CPU seconds.

    python benchmarks/search.py [SCENARIO...] [--picture FILE]

Both sides start from a parsed scenario. Exhaustive: every layout that is legal and fits is
enumerated (`search.space.enumerate`), and all its placements over all fills are costed in blocks by
the same vectorised step. Where that would take more than two minutes (--most), layouts are sampled
at random and the time follows from their rate: it is marked ~. Times are CPU seconds of this
process.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from math import prod

import numpy as np

from planner.api import load_scenario, plan
from planner.cost.context import CostContext
from planner.problem.fills import fills
from planner.problem.scenario import Scenario
from planner.search.interface import NO_CONSTRAINTS
from planner.search.layout_problem import LayoutProblem
from planner.search.placement import count_placements
from planner.search.placement_rows import allowed_blocks, join_blocks
from planner.search.space.enumerate import layouts
from planner.search.space.limits import fits_in_memory

SAMPLED_SECONDS = 5.0
BLOCK_ROWS = 16384

SCENARIOS = (
    ("dense", "llama3-8b-h100x8", {}),
    ("dense", "llama3-8b-torchtitan-h100x64", {}),
    ("dense", "llama3-70b-h100x1024", {}),
    ("dense", "llama3-405b-h100x16384", {"num_accelerators": "4096"}),
    ("dense", "llama3-405b-h100x16384", {}),
    ("dense", "llama3-405b-h100x131072", {}),
    ("experts", "mixtral-8x7b-h100x64", {}),
    ("experts", "mixtral-8x7b-h100x64", {"num_accelerators": "1024",
                                         "training.global_batch_size": "1024"}),
    ("experts", "deepseek-v3-gb300x256", {}),
    ("experts", "deepseek-v3-h800x2048", {}),
    ("experts", "deepseek-v3-h800x2048", {"num_accelerators": "4096"}),
    ("experts", "deepseek-v3-h800x2048", {"num_accelerators": "16384"}),
    ("experts", "deepseek-v3-h800x2048", {"topology": "dgx-h100", "num_accelerators": "131072",
                                          "training.global_batch_size": "122880"}),
)  # fmt: skip


@dataclass(frozen=True)
class Exhaustive:
    """What costing everything takes, and the lowest step of the rows costed (all, or a sample)."""

    layouts: int
    placements: int
    seconds: float
    estimated: bool
    lowest_seconds: float


def exhaustive(scenario: Scenario, most_seconds: float) -> Exhaustive:
    """Enumerate and cost every row, or as many as give the rate."""
    start = time.process_time()
    ctx = CostContext.of(scenario)
    table, _ = layouts(ctx, scenario.search)
    problem = LayoutProblem(ctx, table.take(fits_in_memory(ctx, scenario.search, table)))
    enumerated = time.process_time() - start
    rows = num_placements(problem)
    sample = np.random.default_rng(0).permutation(problem.num_layouts)
    rate, lowest = cost(problem, sample, SAMPLED_SECONDS)
    if enumerated + rows / rate > most_seconds:
        return Exhaustive(problem.num_layouts, rows, enumerated + rows / rate, True, lowest)
    start = time.process_time()
    _, lowest = cost(problem, np.arange(problem.num_layouts), np.inf)
    spent = enumerated + time.process_time() - start
    return Exhaustive(problem.num_layouts, rows, spent, False, lowest)


def num_placements(problem: LayoutProblem) -> int:
    """Rows of all layouts."""
    distinct, times = np.unique(problem.degrees, axis=0, return_counts=True)
    return sum(
        int(number) * sum(count_placements(tuple(row), fill) for fill in all_fills)
        for row, number in zip(distinct.tolist(), times, strict=True)
        for all_fills in [fills(problem.widths, prod(row))]
    )


def cost(problem: LayoutProblem, indices: np.ndarray, within: float) -> tuple[float, float]:
    """Rows per CPU-second and the lowest step of the layouts' rows, until the seconds are over."""
    start, num_rows, lowest = time.process_time(), 0, np.inf
    waiting: list[tuple[int, np.ndarray]] = []
    num_waiting = 0
    for number, index in enumerate(indices.tolist(), 1):
        for block in allowed_blocks(problem, index, NO_CONSTRAINTS):
            waiting.append((index, block))
            num_waiting += len(block)
        if num_waiting >= BLOCK_ROWS or number == len(indices):
            if num_waiting:
                seconds = problem.step_seconds(*join_blocks(waiting))
                num_rows += num_waiting
                lowest = min(lowest, float(seconds.min()))
            waiting, num_waiting = [], 0
            if time.process_time() - start > within:
                break
    return num_rows / max(time.process_time() - start, 1e-9), lowest


def main() -> None:
    """Print a row for every scenario; with --picture draw both sides over the space's size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenario", nargs="*")
    parser.add_argument("--picture")
    parser.add_argument("--most", type=float, default=120.0, help="seconds before estimating")
    arguments = parser.parse_args()
    plan(load_scenario("llama3-8b-h100x8"), top_k=1)  # imports, caches of units and files
    chosen = [row for row in SCENARIOS if not arguments.scenario or row[1] in arguments.scenario]
    columns = ("model", "accelerators", "layouts", "placements", "opened", "costed", "proven",
               "exhaustive", "ratio")  # fmt: skip
    print("| " + " | ".join(columns) + " |")
    print("|---|" + "--:|" * (len(columns) - 1))
    points = []
    for kind, name, overrides in chosen:
        scenario = load_scenario(name, overrides)
        spent = []
        for _ in range(2):
            start = time.process_time()
            best = plan(scenario, top_k=1)
            spent.append(time.process_time() - start)
        every, seconds, search = exhaustive(scenario, arguments.most), min(spent), best.search
        assert search is not None and best.objective_seconds is not None
        assert every.estimated or np.isclose(
            every.lowest_seconds, best.objective_seconds, rtol=1e-9
        )
        mark = "~" if every.estimated else ""
        print(
            f"| {scenario.model.name} | {scenario.num_accelerators:,} | {every.layouts:,} | "
            f"{every.placements:,} | {search.opened:,} | {search.placements:,} | {seconds:.2f} s | "
            f"{mark}{every.seconds:,.1f} s | {mark}{every.seconds / seconds:,.1f} |",
            flush=True,
        )
        points.append((kind, scenario.num_accelerators, every, seconds))
    if arguments.picture:
        draw(points, arguments.picture)


def draw(points: list[tuple[str, int, Exhaustive, float]], path: str) -> None:
    """Seconds of both sides over the placements in the space."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4.5))
    for kind, marker in (("dense", "o"), ("experts", "s")):
        of = sorted((p for p in points if p[0] == kind), key=lambda p: p[2].placements)
        sizes = [p[2].placements for p in of]
        axes.plot(
            sizes, [p[3] for p in of], marker=marker, color="#1f6f8b", label=f"proven, {kind}"
        )
        axes.plot(sizes, [p[2].seconds for p in of], marker=marker, color="#c0562f", ls="--",
                  label=f"every row costed, {kind}")  # fmt: skip
        for i, p in enumerate(of):  # below and above in turn, so that neighbours stand apart
            place = (0, -13 if i % 2 == 0 else 8)
            axes.annotate(f"{p[1]:,}", (p[2].placements, p[3]), textcoords="offset points",
                          xytext=place, ha="center", fontsize=7)  # fmt: skip
    axes.set(xscale="log", yscale="log", xlabel="placements of legal layouts that fit",
             ylabel="CPU seconds")  # fmt: skip
    axes.grid(alpha=0.3, which="both")
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=130)


if __name__ == "__main__":
    main()
