"""Placement variables (atoms) of layouts, and the communicating groups that they make up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from planner.layouts.numeric import Boolean, Integer


class Degrees(Protocol):
    """The degrees that cut both grids: ints of one layout, or int arrays of many."""

    @property
    def tp(self) -> Integer: ...
    @property
    def cp(self) -> Integer: ...
    @property
    def dp_shard(self) -> Integer: ...
    @property
    def ep(self) -> Integer: ...
    @property
    def etp(self) -> Integer: ...


@dataclass(frozen=True, slots=True)
class Grid:
    """Placement variables (atoms) and the communicating groups as products of atoms."""

    atoms: tuple[str, ...]
    groups: Mapping[str, tuple[str, ...]]


DENSE_GRID = Grid(
    atoms=("tp", "cp", "dp_shard", "dp_replicate", "pp"),
    groups={
        "tp": ("tp",),
        "cp": ("cp",),
        "shard": ("cp", "dp_shard"),
        "replicate": ("dp_replicate",),
        "pp": ("pp",),
    },
)
"""Of dense models: states shard and gradients move over cp·dp_shard."""

EXPERT_GRID = Grid(
    atoms=(
        "tp.etp", "tp.ep", "tp", "cp.etp", "cp.ep", "cp", "dp_shard.etp", "dp_shard.ep",
        "dp_shard", "dp_replicate", "pp",
    ),
    groups={
        "tp": ("tp.etp", "tp.ep", "tp"),
        "cp": ("cp.etp", "cp.ep", "cp"),
        "etp": ("tp.etp", "cp.etp", "dp_shard.etp"),
        "ep": ("tp.ep", "cp.ep", "dp_shard.ep"),
        "shard": ("cp.etp", "cp.ep", "cp", "dp_shard.etp", "dp_shard.ep", "dp_shard"),
        "edp": ("tp", "cp", "dp_shard"),
        "replicate": ("dp_replicate",),
        "pp": ("pp",),
    },
)  # fmt: skip
"""Of models with experts, which live on the same ranks: tp·cp·dp_shard = etp·ep·edp. Counted
innermost first both ways, an axis is cut where the other grid's boundaries fall: `cp.ep` is the
part of cp that lies in ep, `cp` that in edp."""

GROUPS = tuple(EXPERT_GRID.groups)
"""Names of all communicating groups."""


def atom_degree(layout: Degrees, atom: str, grid: Grid) -> Integer:
    """Degree of a grid's atom; where the experts' grid cuts the axes, an overlap of intervals."""
    axis, _, expert = atom.partition(".")
    if grid is DENSE_GRID or axis in ("dp_replicate", "pp"):
        degree: Integer = getattr(layout, axis)
        return degree
    ends: dict[str, Integer] = {"tp": layout.tp, "cp": layout.tp * layout.cp}
    ends["dp_shard"] = ends["cp"] * layout.dp_shard
    starts: dict[str, Integer] = {"tp": 1, "cp": ends["tp"], "dp_shard": ends["cp"]}
    expert_ends = {"etp": layout.etp, "ep": layout.etp * layout.ep, "": ends["dp_shard"]}
    expert_starts: dict[str, Integer] = {"etp": 1, "ep": expert_ends["etp"], "": expert_ends["ep"]}
    low = np.maximum(starts[axis], expert_starts[expert])
    high = np.minimum(ends[axis], expert_ends[expert])
    overlap: Integer = np.maximum(high // low, 1)
    return overlap


def grids_nest(layout: Degrees) -> Boolean:
    """Whether the boundaries of both grids divide each other, so that atoms make up both."""
    nested: Boolean = True
    for dense in (layout.tp, layout.tp * layout.cp):
        for expert in (layout.etp, layout.etp * layout.ep):
            nested = nested & ((dense % expert == 0) | (expert % dense == 0))
    return nested
