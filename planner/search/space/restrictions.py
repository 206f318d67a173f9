"""What a scenario's `search:` leaves of each choice, and a given layout as such a restriction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.layouts.keys import CP_KINDS, KEYS, WITH_VIRTUAL_STAGES, Choice
from planner.layouts.layout import LayoutTable
from planner.problem.scenario import Search
from planner.problem.software import Software
from planner.search.space.crossings import listed_overlaps

EXPERTS_NEED_MOE = "experts-need-moe"
WITHOUT_EXPERTS = "expert parallelism needs a model with experts"
"""Rule of models without experts, whose layouts have no expert degrees to restrict."""

SEARCH_PREFIX = "search."
"""What restrictions are called among rules: search.tp."""


def key_of(column: str) -> str:
    """The layout key of a table's column."""
    return column.removesuffix("_index")


def allowed(search: Search, name: str) -> list[int] | None:
    """The restriction on a column as its integer codes, or None."""
    key = KEYS.get(key_of(name))
    values = None if key is None else getattr(search, key.name, None)
    return None if key is None or values is None else [key.code(value) for value in values]


def restricted(search: Search) -> tuple[str, ...]:
    """The keys of `search:` that restrict a choice."""
    return tuple(k.name for k in KEYS.values() if k.restricted and getattr(search, k.name))


def unsearched(software: Software, values: Mapping[str, Any]) -> dict[str, Any]:
    """Of given layout keys those that no search crosses: overlap, stage_layers, and recompute
    that the software does not offer."""
    return {
        key: value
        for key, value in values.items()
        if key in ("overlap", "stage_layers")
        or (key == "recompute" and value not in software.recompute)
    }


def fixed(search: Search, software: Software, values: Mapping[str, Any]) -> Search:
    """The restrictions with given layout keys at their one value; keys not given as they were."""
    others = unsearched(software, values)
    chosen = {key: value for key, value in values.items() if key not in others}
    if chosen.get("cp_a2a", 1) > 1:
        chosen.setdefault("cp_kind", "hierarchical")
    if "schedule" in chosen and chosen.get("vp", 1) > 1:
        schedule = chosen["schedule"]
        chosen["schedule"] = WITH_VIRTUAL_STAGES.get(schedule, schedule)
    if "stage_layers" in values:
        chosen.setdefault("pp", len(values["stage_layers"]))
    return search.replace(**{key: (value,) for key, value in chosen.items()})


def listed(search: Search, key: str) -> tuple[Any, ...] | None:
    """The values `search:` lists of a layout key; None where it leaves all."""
    values: tuple[Any, ...] | None = getattr(search, key, None)
    if values is None and KEYS[key].choice is Choice.DEFAULT:
        return (KEYS[key].default,)
    return values


def outside(search: Search, values: Mapping[str, Any]) -> tuple[str, ...]:
    """Given layout keys whose value `search:` does not list."""
    return tuple(k for k, value in values.items() if value not in (listed(search, k) or (value,)))


def restriction_masks(search: Search, table: LayoutTable) -> dict[str, NDArray[np.bool_]]:
    """Restriction's name → the layouts that keep it, shape (rows)."""
    free = {
        "cp_kind": table.cp == 1,
        "dispatcher": table.ep == 1,
        "cp_a2a": table.cp_kind_index != CP_KINDS.index("hierarchical"),
    }
    found = {}
    for key in restricted(search):
        if key == "overlap":
            found[SEARCH_PREFIX + key] = listed_overlaps(search, table)
            continue
        column, codes = getattr(table, KEYS[key].column), allowed(search, key) or []
        found[SEARCH_PREFIX + key] = np.isin(column, codes) | free.get(key, False)
    return found
