"""Break a bound or a constraint of the search on purpose: the tests that must notice, do they?

Each mutation is one change of the source, made in a copy of the checkout, where the named tests run
until one fails; before, they must pass. A mutation that none notices survives, and the program ends
with 1.

python benchmarks/mutations.py [--only NAME] [--list]
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
LEFT_OUT = (".git", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis")


@dataclass(frozen=True)
class Mutation:
    """A change of one place of a source file under planner/, and the tests that must fail."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


OPTIMUM = ("tests/search/test_optimize.py",)
PROBLEM = ("tests/search/test_layout_problem.py",)
ASSIGN = ("tests/search/test_assign.py",)
FAMILIES = ("tests/search/test_families.py",)
CERTIFY = ("tests/search/test_certify.py",)
CONFLICT = ("tests/search/test_conflict.py::test_a_rule_and_a_restriction_are_named_together",)
SPLITS = ("tests/search/test_split_search.py",)
BEST_SPLIT = ("tests/search/test_best_split.py",)
INVENTORY = ("tests/search/test_inventory.py",)
WHY_NOT = ("tests/advise/test_why_not.py",)

MUTATIONS = (
    Mutation(
        "bound scaled by 1.01", "search/layout_problem.py",
        "return np.where(possible, total, np.inf)",
        "return np.where(possible, 1.01 * total, np.inf)", PROBLEM,
    ),
    Mutation(
        "largest instead of least over a group's splits", "search/bounds.py",
        "return float(np.min(np.broadcast_to(component, len(options))))",
        "return float(np.max(np.broadcast_to(component, len(options))))", PROBLEM,
    ),
    Mutation(
        "tighter bound with too few members beside tp", "search/bounds.py",
        "return 1, width if shares_atoms else width // tp_innermost",
        "return 1, max(1, width // tp_innermost // 2)", PROBLEM,
    ),
    Mutation(
        "threshold one layout too low", "search/optimize.py",
        "self.kth_seconds = heapq.nsmallest(self.top_k, steps)[-1]",
        "self.kth_seconds = heapq.nsmallest(self.top_k, steps)[max(0, self.top_k - 2)]", OPTIMUM,
    ),
    Mutation(
        "ties are not searched", "search/optimize.py",
        "return bound < inf and (bound < self.kth_seconds or bound <= self.tie_limit_seconds)",
        "return bound < inf and bound < self.lowest_seconds", OPTIMUM,
    ),
    Mutation(
        "placements of a layout left out", "search/placement.py",
        "yield block\n\n\ndef placements(", "yield block[1:]\n\n\ndef placements(",
        ("tests/search/test_placement.py",),
    ),
    Mutation(
        "only the fullest fill", "search/placement_rows.py",
        "for fill in fills(widths, prod(degrees)):\n        yield from",
        "for fill in fills(widths, prod(degrees))[:1]:\n        yield from", OPTIMUM,
    ),
    Mutation(
        "tie rule inverted", "search/assign.py",
        "            ~candidates.in_framework_order,\n",
        "            candidates.in_framework_order,\n", OPTIMUM,
    ),
    Mutation(
        "coefficients rounded up", "search/assign.py",
        "units = np.floor(excess / span * 2.0**bits)",
        "units = np.ceil(excess / span * 2.0**bits)", ASSIGN,
    ),
    Mutation(
        "the fastest row dropped from a long list", "search/assign.py",
        "return np.union1d(best, [fastest])", "return best[best != fastest]", ASSIGN,
    ),
    Mutation(
        "forbidden rows are allowed", "search/assign.py",
        "allowed &= ~rows", "allowed &= True", ASSIGN,
    ),
    Mutation(
        "side constraints do not filter placements", "search/placement_rows.py",
        "yield block[~np.any(list(violated.values()), axis=0)] if violated else block",
        "yield block", OPTIMUM,
    ),
    Mutation(
        "a rule dropped", "search/rules/structural.py",
        '        ("cp",),\n        lambda ctx, x: (np.asarray(x.cp) == 1) | divides(2 * x.cp',
        '        ("cp",),\n        lambda ctx, x: (np.asarray(x.cp) >= 1) | divides(2 * x.cp',
        ("tests/search/test_rules.py",),
    ),
    Mutation(
        "restrictions of search: ignored", "search/space/enumerate.py",
        "self._keep(np.isin(values, wanted), SEARCH_RULE)",
        "self._keep(np.isin(values, values), SEARCH_RULE)",
        ("tests/search/test_relaxation.py::test_no_legal_layout_has_no_nearest_miss",),
    ),
    Mutation(
        "memory filter off", "search/space/limits.py",
        "allowed = np.asarray(peak_bytes <= peak_limit_bytes(ctx, search))",
        "allowed = np.asarray(peak_bytes <= np.inf)",
        ("tests/search/test_relaxation.py::test_nearest_miss_is_the_least_peak_of_all",),
    ),
    Mutation(
        "families bounded without free context traffic", "search/family_bounds.py",
        "lower[has_cp] = any_kind_bounds(ctx, block.take(has_cp), any_split)",
        "lower[has_cp] = 1.2 * any_kind_bounds(ctx, block.take(has_cp), any_split)", FAMILIES,
    ),
    Mutation(
        "families left behind once something fits", "search/families.py",
        "return num_open > 0 and self.families_bound <= self.threshold",
        "return num_open > 0 and self.families_bound <= 0.5 * self.threshold", FAMILIES,
    ),
    Mutation(
        "a robust bound without its factor", "search/family_bounds.py",
        "lower = lower * weights\n", "lower = 2.0 * lower * weights\n", FAMILIES,
    ),
    Mutation(
        "certificate takes any bound", "search/certify.py",
        'if result.status == "optimal" and open_bound * slack < result.threshold_seconds:',
        'if result.status == "none" and open_bound * slack < result.threshold_seconds:', CERTIFY,
    ),
    Mutation(
        "reported bounds forget what waits", "search/optimize.py",
        "lowest_open = self.lower[waiting[0][0]].item() if waiting else bound",
        "lowest_open = self.incumbents.lowest_seconds", ("tests/search/test_watch.py",),
    ),
    Mutation(
        "copies by ZeRO stage are kept", "search/space/crossings.py",
        "np.asarray(state_shards(ctx, table).shared | lowest)",
        "np.asarray(state_shards(ctx, table).shared | (table.zero_stage >= 0))",
        (
            "tests/search/test_distinct.py"
            "::test_zero_stages_that_shard_nothing_are_one_layout",
        ),
    ),
    Mutation(
        "a hitting set that is not smallest", "search/infeasible/conflict.py",
        "for member in sorted(unmet[0], key=rank.__getitem__):",
        "for member in sorted(unmet[0], key=rank.__getitem__)[:1]:",
        ("tests/search/test_conflict.py::test_smallest_is_that_of_all_subsets",),
    ),
    Mutation(
        "a conflict keeps what is not needed", "search/infeasible/conflict.py",
        "if not _is_feasible(scenario, others):", "if _is_feasible(scenario, ()) and False:",
        CONFLICT,
    ),
    Mutation(
        "why-not completes without its keys", "search/space/restrictions.py",
        "return search.replace(**{key: (value,) for key, value in chosen.items()})",
        "return search", WHY_NOT,
    ),
    Mutation(
        "nearest values need not be legal", "search/infeasible/given_keys.py",
        "        if len(table):\n            return True\n    return False",
        "        return True\n    return True", WHY_NOT,
    ),
    Mutation(
        "bound of all splits scaled by 1.01", "search/stage_splits/best_split.py",
        "return bound * (1.0 - ROUNDING)", "return bound * 1.01", BEST_SPLIT,
    ),
    Mutation(
        "splits that memory does not hold", "search/stage_splits/options.py",
        "fits=contents.allowed & fits,", "fits=contents.allowed,", BEST_SPLIT,
    ),
    Mutation(
        "chunks without the layers that each recomputes", "search/stage_splits/options.py",
        "np.maximum(leading, fewest_each)", "np.maximum(leading, 1)", BEST_SPLIT,
    ),
    Mutation(
        "bound over placements without the cheapest", "search/stage_splits/split_search.py",
        "np.minimum.at(lowest, indices, problem.step_seconds(indices, rows))",
        "np.fmax.at(lowest, indices, problem.step_seconds(indices, rows))", SPLITS,
    ),
    Mutation(
        "the mean stage keeps a layer more", "cost/stage_split_bounds.py",
        "layers = kinds[most].share * num_layers(ctx.model) - pp * counted",
        "layers = kinds[most].share * num_layers(ctx.model) - pp * counted + pp", BEST_SPLIT,
    ),
    Mutation(
        "a count that some splits alone have is left out", "search/space/recompute.py",
        "at = np.flatnonzero(most >= layers)", "at = np.flatnonzero(most > layers)", SPLITS,
    ),
    Mutation(
        "an inventory's domains without one more in use", "search/inventory.py",
        "cost[1:] += per_domain + per_accelerator * size",
        "cost[1:] += per_accelerator * size", INVENTORY,
    ),
    Mutation(
        "an inventory's blocks go to the most expensive", "search/inventory.py",
        "chosen = int(np.argmin(before[number - k] + item.cost[k]))",
        "chosen = int(k[before[number - k] < NEVER][0])", INVENTORY,
    ),
)  # fmt: skip


def mutated(mutation: Mutation, text: str) -> str:
    """The file's text with the change made; the place must be there exactly once."""
    if text.count(mutation.old) != 1:
        raise ValueError(f"{mutation.name}: its place is {text.count(mutation.old)} times there")
    return text.replace(mutation.old, mutation.new)


@contextmanager
def checkout() -> Iterator[Path]:
    """A copy of the checkout that may be broken."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "checkout"
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*LEFT_OUT))
        yield copy


def failing(copy: Path, tests: tuple[str, ...]) -> str | None:
    """The first of the tests that fails in the copy."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "", *tests],
        cwd=copy, env={**os.environ, "PYTHONPATH": str(copy)}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    if done.returncode not in (0, 1):
        raise RuntimeError(done.stdout[-2000:] + done.stderr[-2000:])
    if done.returncode == 0:
        return None
    told = re.search(r"(?m)^(?:FAILED|ERROR) (\S+)", done.stdout)
    return told[1].rpartition("/")[2] if told else "one"


def noticed(copy: Path, mutation: Mutation) -> str | None:
    """The test that notices the change, if one does; the copy is as before afterwards."""
    path = copy / "planner" / mutation.file
    whole = path.read_text("utf-8")
    path.write_text(mutated(mutation, whole), "utf-8")
    try:
        return failing(copy, mutation.tests)
    finally:
        path.write_text(whole, "utf-8")


def main() -> int:
    """Print each mutation, whether it was noticed and how long that took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", metavar="NAME", help="mutations whose name holds this")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    chosen = [m for m in MUTATIONS if options.only is None or options.only in m.name]
    if options.list:
        print("\n".join(f"{m.file:24} {m.name}" for m in chosen))
        return 0
    left = []
    with checkout() as copy:
        for tests in dict.fromkeys(mutation.tests for mutation in chosen):
            broken = failing(copy, tests)
            if broken is not None:
                raise SystemExit(f"{broken} fails before anything is changed")
        for mutation in chosen:
            started = time.monotonic()
            test = noticed(copy, mutation)
            left += [mutation.name] if test is None else []
            spent = time.monotonic() - started
            print(f"{spent:6.1f} s  {mutation.name:47} {test or 'SURVIVES'}", flush=True)
    print(f"{len(chosen) - len(left)} of {len(chosen)} mutations noticed")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
