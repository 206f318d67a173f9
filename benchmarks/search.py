"""CPU seconds from a parsed scenario to a proven plan, imports excluded.

python benchmarks/search.py [SCENARIO...]
"""

from __future__ import annotations

import sys
import time

from planner.api import load_scenario, plan

SCENARIOS = (
    "llama3-8b-h100x8",
    "llama3-70b-h100x1024",
    "llama3-405b-h100x16384",
    "llama3-405b-128k-h100x16384",
    "llama3-405b-meta24k-h100x16384",
    "llama3-405b-gb200x1152",
    "llama3-405b-h100x131072",
)


def main() -> None:
    """Print the best of three runs of every scenario."""
    names = sys.argv[1:] or SCENARIOS
    plan(load_scenario(names[0]))  # imports, caches of units and files
    print(f"{'scenario':34} {'CPU s':>6} {'layouts':>9} {'opened':>7} {'placements':>11}  status")
    for name in names:
        scenario = load_scenario(name)
        seconds = []
        for _ in range(3):
            start = time.process_time()
            found = plan(scenario)
            seconds.append(time.process_time() - start)
        spent = found.search
        assert spent is not None
        print(
            f"{name:34} {min(seconds):6.2f} {spent.shapes:9,} {spent.opened:7,} "
            f"{spent.placements:11,}  {found.status}"
        )


if __name__ == "__main__":
    main()
