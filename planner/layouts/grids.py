"""Placement variables (atoms) of layouts, and the communicating groups that they make up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

Numeric = Any


class Degrees(Protocol):
    """The degrees that cut both grids: ints of one layout, or int arrays of many."""

    @property
    def tp(self) -> Numeric: ...
    @property
    def cp(self) -> Numeric: ...
    @property
    def dp_shard(self) -> Numeric: ...
    @property
    def ep(self) -> Numeric: ...
    @property
    def etp(self) -> Numeric: ...


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


def atom_degree(layout: Degrees, atom: str, grid: Grid) -> Numeric:
    """Degree of a grid's atom; where the experts' grid cuts the axes, an overlap of intervals."""
    axis, _, expert = atom.partition(".")
    if grid is DENSE_GRID or axis in ("dp_replicate", "pp"):
        return getattr(layout, axis)
    ends = {"tp": layout.tp, "cp": layout.tp * layout.cp}
    ends["dp_shard"] = ends["cp"] * layout.dp_shard
    starts = {"tp": 1, "cp": ends["tp"], "dp_shard": ends["cp"]}
    expert_ends = {"etp": layout.etp, "ep": layout.etp * layout.ep, "": ends["dp_shard"]}
    expert_starts = {"etp": 1, "ep": expert_ends["etp"], "": expert_ends["ep"]}
    low = np.maximum(starts[axis], expert_starts[expert])
    high = np.minimum(ends[axis], expert_ends[expert])
    return np.maximum(high // low, 1)


def grids_nest(layout: Degrees) -> Numeric:
    """Whether the boundaries of both grids divide each other, so that atoms make up both."""
    nested: Numeric = True
    for dense in (layout.tp, layout.tp * layout.cp):
        for expert in (layout.etp, layout.etp * layout.ep):
            nested = nested & ((dense % expert == 0) | (expert % dense == 0))
    return nested
