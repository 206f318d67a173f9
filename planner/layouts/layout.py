"""What is decided: the degrees of a layout, one or many, and the groups they make.

A layout says how many ways each axis cuts the job and how the pieces run (micro-batch, virtual
stages, recompute, sharding). Where each piece lives is a placement: see `planner.search.placement`.
Both classes carry the same attribute names, so one cost formula serves numbers and arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from planner.layouts.grids import DENSE_GRID, Grid, atom_degree, grids_nest
from planner.layouts.keys import KEYS, OVERLAPS, WITH_VIRTUAL_STAGES, WITHOUT_VIRTUAL_STAGES, Form
from planner.layouts.numeric import Integer


class LayoutLike(Protocol):
    """What a cost formula reads: ints for one layout, int arrays of one length for many."""

    @property
    def tp(self) -> Integer: ...
    @property
    def cp(self) -> Integer: ...
    @property
    def pp(self) -> Integer: ...
    @property
    def dp_shard(self) -> Integer: ...
    @property
    def dp_replicate(self) -> Integer: ...
    @property
    def ep(self) -> Integer: ...
    @property
    def etp(self) -> Integer: ...
    @property
    def vp(self) -> Integer: ...
    @property
    def mbs(self) -> Integer: ...
    @property
    def num_microbatches(self) -> Integer: ...
    @property
    def zero_stage(self) -> Integer: ...
    @property
    def sp(self) -> Integer: ...
    @property
    def schedule_index(self) -> Integer: ...
    @property
    def recompute_index(self) -> Integer: ...
    @property
    def recompute_layers(self) -> Integer: ...
    @property
    def cp_kind_index(self) -> Integer: ...
    @property
    def cp_a2a(self) -> Integer: ...
    @property
    def overlap_tp(self) -> Integer: ...
    @property
    def overlap_dp(self) -> Integer: ...
    @property
    def overlap_pp(self) -> Integer: ...
    @property
    def overlap_ep(self) -> Integer: ...
    @property
    def dispatcher_index(self) -> Integer: ...
    @property
    def offload_index(self) -> Integer: ...
    @property
    def loss_chunks(self) -> Integer: ...
    @property
    def stage_layers(self) -> tuple[int, ...] | None: ...


@dataclass(frozen=True, slots=True)
class Layout:
    """One layout: degrees and their companions.

    What each key means, and what it may be, is in `planner.layouts.keys`. `stage_layers` gives the
    layers of each pipeline stage, or of each of its pp·vp chunks in model order; None is the
    default split, even with the remainder in the middle. `overlap` names the axes whose
    communication runs behind computation, such as "tp+dp", or "none". 1f1b with vp > 1 becomes
    interleaved, and zb-h1 interleaved-zb; with vp = 1 the other way round.
    """

    tp: int = 1
    cp: int = 1
    pp: int = 1
    dp_shard: int = 1
    dp_replicate: int = 1
    ep: int = 1
    etp: int = 1
    vp: int = 1
    mbs: int = 1
    num_microbatches: int = 1
    zero_stage: int = 1
    sp: bool = False
    schedule: str = "1f1b"
    recompute: str = "none"
    recompute_layers: int = 0
    cp_kind: str = "ring"
    cp_a2a: int = 1
    overlap: str = "none"
    dispatcher: str = "alltoall"
    offload: str = "none"
    loss_chunks: int = 1
    stage_layers: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        names = WITH_VIRTUAL_STAGES if self.vp > 1 else WITHOUT_VIRTUAL_STAGES
        object.__setattr__(self, "schedule", names.get(self.schedule, self.schedule))

    @property
    def dp(self) -> int:
        """Data-parallel degree, dp_shard · dp_replicate."""
        return self.dp_shard * self.dp_replicate

    @property
    def num_ranks(self) -> int:
        """World size, tp · cp · pp · dp."""
        return self.tp * self.cp * self.pp * self.dp

    @property
    def edp(self) -> int:
        """Expert-data-parallel degree, tp · cp · dp / (etp · ep)."""
        return self.tp * self.cp * self.dp // (self.etp * self.ep)

    @property
    def grids_nest(self) -> bool:
        """Whether the experts' grid nests in the dense one, so that the layout has placements."""
        return bool(grids_nest(self))

    def code(self, name: str) -> int:
        """The integer that stands for a key's value in a table."""
        return KEYS[name].code(getattr(self, name))

    @property
    def schedule_index(self) -> int:
        """Position of `schedule` in SCHEDULES."""
        return self.code("schedule")

    @property
    def recompute_index(self) -> int:
        """Position of `recompute` in RECOMPUTE."""
        return self.code("recompute")

    @property
    def cp_kind_index(self) -> int:
        """Position of `cp_kind` in CP_KINDS."""
        return self.code("cp_kind")

    @property
    def dispatcher_index(self) -> int:
        """Position of `dispatcher` in DISPATCHERS."""
        return self.code("dispatcher")

    @property
    def offload_index(self) -> int:
        """Position of `offload` in OFFLOADS."""
        return self.code("offload")

    def overlaps(self, axis: str) -> bool:
        """Whether an axis' communication runs beside computation."""
        return axis in self.overlap.split("+")

    @property
    def overlap_tp(self) -> int:
        """1 where tensor-parallel collectives are chunked behind matmuls."""
        return int(self.overlaps("tp"))

    @property
    def overlap_dp(self) -> int:
        """1 where gradient and parameter traffic runs beside the passes."""
        return int(self.overlaps("dp"))

    @property
    def overlap_pp(self) -> int:
        """1 where stage-boundary sends run beside computation."""
        return int(self.overlaps("pp"))

    @property
    def overlap_ep(self) -> int:
        """1 where dispatch and combine run beside another micro-batch's computation."""
        return int(self.overlaps("ep"))

    def degrees(self, grid: Grid = DENSE_GRID) -> tuple[int, ...]:
        """Degrees of a grid's atoms."""
        return tuple(int(atom_degree(self, atom, grid)) for atom in grid.atoms)

    def to_document(self) -> dict[str, Any]:
        """The layout as JSON values, key by key; null where a value means nothing."""
        values = {name: getattr(self, name) for name in KEYS}
        document = {
            name: values[name] if key.null_unless(values) else None for name, key in KEYS.items()
        }
        if self.stage_layers is not None:
            document["stage_layers"] = list(self.stage_layers)
        return document

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Layout:
        """The layout of such values; derived keys are left aside."""
        given = {
            key.name: document[key.name]
            for key in KEYS.values()
            if not key.derived and document.get(key.name) is not None
        }
        if "stage_layers" in given:
            given["stage_layers"] = tuple(given["stage_layers"])
        return cls(**given)

    def label(self) -> str:
        """The layout in one short line, without degrees of 1: 'tp8 pp2 vp4 dp64 mbs2 zero1'."""
        pieces = [label(self) for label in LABELS.values()]
        rest = (
            key for key in KEYS.values() if key.name not in LABELS and key.name not in UNLABELLED
        )
        for key in rest:
            value = getattr(self, key.name)
            pieces.append("" if value == key.default else f"{key.name}={value}")
        return " ".join(filter(None, pieces))


def _degree(prefix: str, name: str) -> Callable[[Layout], str]:
    def label(layout: Layout) -> str:
        degree: int = getattr(layout, name)
        return f"{prefix}{degree}" if degree > 1 else ""

    return label


def _recompute_label(layout: Layout) -> str:
    count = f"-{layout.recompute_layers}" if layout.recompute_layers else ""
    return "" if layout.recompute == "none" else layout.recompute + count


LABELS: Mapping[str, Callable[[Layout], str]] = {
    **{name: _degree(name, name) for name in ("tp", "cp", "ep", "etp", "pp", "vp")},
    "cp_a2a": _degree("a2a", "cp_a2a"),
    "dp": lambda layout: f"dp{layout.dp}",
    "dp_shard": lambda layout: f"shard{layout.dp_shard}" if layout.dp_replicate > 1 else "",
    "schedule": lambda layout: (
        "" if layout.schedule in ("1f1b", "interleaved") else layout.schedule
    ),
    "mbs": lambda layout: f"mbs{layout.mbs}",
    "zero_stage": lambda layout: f"zero{layout.zero_stage}",
    "recompute": _recompute_label,
    "offload": lambda layout: "" if layout.offload == "none" else f"offload-{layout.offload}",
}
"""How a label says the keys that it has, in its order."""

UNLABELLED = (
    "dp_replicate", "edp", "sp", "num_microbatches", "recompute_layers", "overlap", "cp_kind",
    "dispatcher", "stage_layers",
)  # fmt: skip
"""Keys that labels leave out; a key that is neither here nor in LABELS is shown by its name."""


COLUMNS: tuple[str, ...] = (
    *(
        key.column
        for key in KEYS.values()
        if not key.derived and key.form not in (Form.AXES, Form.LAYERS)
    ),
    *(f"overlap_{axis}" for axis in OVERLAPS),
)
"""The integer columns of a table: one a key, a choice's by its code, and one a set's axis."""


@dataclass(frozen=True, slots=True)
class LayoutTable:
    """Many layouts: one int64 array of length N per attribute of `LayoutLike`.

    `stage_layers`, where it is given, holds for every row.
    """

    tp: NDArray[np.int64]
    cp: NDArray[np.int64]
    pp: NDArray[np.int64]
    dp_shard: NDArray[np.int64]
    dp_replicate: NDArray[np.int64]
    ep: NDArray[np.int64]
    etp: NDArray[np.int64]
    vp: NDArray[np.int64]
    mbs: NDArray[np.int64]
    num_microbatches: NDArray[np.int64]
    zero_stage: NDArray[np.int64]
    sp: NDArray[np.int64]
    schedule_index: NDArray[np.int64]
    recompute_index: NDArray[np.int64]
    recompute_layers: NDArray[np.int64]
    cp_kind_index: NDArray[np.int64]
    cp_a2a: NDArray[np.int64]
    dispatcher_index: NDArray[np.int64]
    offload_index: NDArray[np.int64]
    loss_chunks: NDArray[np.int64]
    overlap_tp: NDArray[np.int64]
    overlap_dp: NDArray[np.int64]
    overlap_pp: NDArray[np.int64]
    overlap_ep: NDArray[np.int64]
    stage_layers: tuple[int, ...] | None = None

    def __len__(self) -> int:
        return len(self.tp)

    @property
    def dp(self) -> NDArray[np.int64]:
        """Data-parallel degrees."""
        return self.dp_shard * self.dp_replicate

    @property
    def edp(self) -> NDArray[np.int64]:
        """Expert-data-parallel degrees."""
        return self.tp * self.cp * self.dp // (self.etp * self.ep)

    @property
    def grids_nest(self) -> NDArray[np.bool_]:
        """Whether the experts' grid nests in the dense one, so that a row has placements."""
        return np.asarray(grids_nest(self))

    def take(self, index: Any) -> LayoutTable:
        """The rows at `index` (a mask, a slice or positions)."""
        columns = {name: _taken(getattr(self, name), index) for name in COLUMNS}
        return LayoutTable(**columns, stage_layers=self.stage_layers)

    def joined(self, other: LayoutTable) -> LayoutTable:
        """These rows and those of a table of the same split."""
        columns = {
            name: np.concatenate([getattr(self, name), getattr(other, name)]) for name in COLUMNS
        }
        return LayoutTable(**columns, stage_layers=self.stage_layers)

    def first_like(self, i: int) -> int:
        """The first row that equals row `i` in every column."""
        columns = (getattr(self, name) for name in COLUMNS)
        return int(np.argmax(np.all([column == column[i] for column in columns], axis=0)))

    def degrees(self, grid: Grid = DENSE_GRID) -> NDArray[np.int64]:
        """Degrees of a grid's atoms, shape (N, atoms)."""
        return np.stack([atom_degree(self, atom, grid) for atom in grid.atoms], axis=1)

    def row(self, i: int) -> Layout:
        """Row `i` as a Layout of Python numbers (the one door out of numpy)."""
        codes = {name: getattr(self, name)[i].item() for name in COLUMNS}
        values = {
            key.name: key.value_of(codes[key.column])
            for key in KEYS.values()
            if key.column in codes
        }
        overlap = "+".join(axis for axis in OVERLAPS if codes[f"overlap_{axis}"]) or "none"
        return Layout(**values, overlap=overlap, stage_layers=self.stage_layers)

    @classmethod
    def uniform(cls, layout: Layout, length: int = 1) -> LayoutTable:
        """A table of one layout over and over."""
        columns = {n: np.broadcast_to(np.int64(getattr(layout, n)), (length,)) for n in COLUMNS}
        return cls(**columns, stage_layers=layout.stage_layers)

    @classmethod
    def from_layouts(cls, layouts: Iterable[Layout]) -> LayoutTable:
        """A table of the given layouts, whose stage splits must be alike, and their schedules where
        one is given."""
        rows = list(layouts)
        splits = {row.stage_layers for row in rows}
        if len(splits) > 1:
            raise ValueError("the layouts of a LayoutTable have one stage split")
        if splits - {None} and len({row.schedule for row in rows}) > 1:
            raise ValueError("the layouts of a LayoutTable that names its split have one schedule")
        return cls(
            **{n: np.array([getattr(r, n) for r in rows], dtype=np.int64) for n in COLUMNS},
            stage_layers=splits.pop() if splits else None,
        )


def _taken(column: NDArray[np.int64], index: Any) -> NDArray[np.int64]:
    """`column[index]`; one value for all rows stays one value, without a copy for each."""
    if column.strides != (0,):
        found: NDArray[np.int64] = column[index]
        return found
    if isinstance(index, slice):
        count = len(range(*index.indices(len(column))))
    else:
        count = int(np.count_nonzero(index)) if index.dtype == bool else len(index)
    return np.broadcast_to(column[:1], (count,))
