"""Parallelism placement planner for LLM training clusters.

The calls of `planner.api` are importable from here; loading them is put off until they are used,
so that `planner --help` starts at once.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "planner.api": (
        "check", "compare", "diagnose", "evaluate", "evaluate_many", "explain", "export_plan",
        "import_model", "import_topology", "load_scenario", "names", "plan", "read_plan",
        "read_sweep", "run_sweep", "scenario_of", "shrink", "validate_runs", "what_if", "why_not",
        "Scenario",
    ),
    "planner.planning.plan": ("Plan",),
    "planner.layouts.layout": ("Layout",),
    "planner.errors": (
        "ExportError", "IllegalLayoutError", "InputError", "PlannerError", "UnknownNameError",
        "UnsupportedError",
    ),
}  # fmt: skip

_WHERE = {name: home for home, members in _HOMES.items() for name in members}

__all__ = ["__version__", *sorted(_WHERE)]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(import_module(_WHERE[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
