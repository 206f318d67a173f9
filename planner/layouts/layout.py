"""What is decided: the degrees of a layout, one or many, and the groups they make.

A layout says how many ways each axis cuts the job and how the pieces run (micro-batch, virtual
stages, recompute, sharding). Where each piece lives is a placement: see `planner.search.placement`.
Both classes carry the same attribute names, so one cost formula serves numbers and arrays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from planner.layouts.grids import DENSE_GRID, Grid, atom_degree
from planner.layouts.numeric import Integer

RECOMPUTE = (
    "none", "selective", "operators", "alternate", "full", "mla_up_proj", "act", "act_norm", "moe",
)  # fmt: skip
"""Recompute kinds: nothing; the attention core; every operator but matmul outputs' halves
(torchtitan's per-operator checkpointing); every second layer whole; every layer whole; and by
module: latent attention's up-projections, activation functions, these and the norms, routed
experts with the exchanges to and from them."""

CP_KINDS = ("ring", "all_gather", "a2a", "hierarchical")
"""How context-parallel ranks share attention: keys and values sent round from rank to rank behind
it; gathered before it; heads exchanged for tokens (Ulysses); heads exchanged among `cp_a2a` ranks
next to each other, and a ring over those groups (Megatron's a2a+p2p)."""

DISPATCHERS = ("alltoall", "flex", "allgather")
"""How tokens travel to experts: a copy for every expert chosen (NCCL's all-to-all); one copy to a
domain and one to a rank, however many of its experts are chosen (DeepEP, HybridEP); all tokens to
all ranks."""

OFFLOADS = ("none", "optimizer", "activations", "optimizer+activations")
"""What lives in the host's memory: optimizer states, which its processors step; what layers keep
for their backward pass, all but two layers'."""

SCHEDULES = (
    "1f1b", "interleaved", "zb-h1", "interleaved-zb", "zb-v", "dualpipe", "dualpipev",
)  # fmt: skip
"""Pipeline schedules; `planner.layouts.schedules` plays them out. With virtual stages 1f1b is
interleaved and zb-h1 is interleaved-zb."""

WITH_VIRTUAL_STAGES = {"1f1b": "interleaved", "zb-h1": "interleaved-zb"}
WITHOUT_VIRTUAL_STAGES = {name: plain for plain, name in WITH_VIRTUAL_STAGES.items()}

V_SHAPED = ("zb-v", "dualpipev")
"""Schedules of two chunks a rank, the second on the way back: the last rank turns, and the first
holds the first and the last chunk."""

OVERLAPS = ("tp", "dp", "pp", "ep")


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
    def stage_layers(self) -> tuple[int, ...] | None: ...


@dataclass(frozen=True, slots=True)
class Layout:
    """One layout: degrees and their companions.

    `stage_layers` gives the layers of each pipeline stage, or of each of its pp·vp chunks in model
    order, where the default split (even, the remainder to the middle) is not meant. `overlap` names
    the axes whose traffic runs beside computation ("tp+dp", "none"). `cp_a2a` is the inner degree
    of hierarchical context parallelism. `recompute_layers` n: of every chunk the first n layers
    alone are run again, 0 all. Of the pairs of schedules that virtual stages tell apart, `vp`
    decides.
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
    def schedule_index(self) -> int:
        """Position of `schedule` in SCHEDULES."""
        return SCHEDULES.index(self.schedule)

    @property
    def recompute_index(self) -> int:
        """Position of `recompute` in RECOMPUTE."""
        return RECOMPUTE.index(self.recompute)

    @property
    def cp_kind_index(self) -> int:
        """Position of `cp_kind` in CP_KINDS."""
        return CP_KINDS.index(self.cp_kind)

    @property
    def overlap_tp(self) -> int:
        """1 where tensor-parallel collectives are chunked behind matmuls."""
        return int("tp" in self.overlap.split("+"))

    @property
    def overlap_dp(self) -> int:
        """1 where gradient and parameter traffic runs beside the passes."""
        return int("dp" in self.overlap.split("+"))

    @property
    def overlap_pp(self) -> int:
        """1 where stage-boundary sends run beside computation."""
        return int("pp" in self.overlap.split("+"))

    @property
    def overlap_ep(self) -> int:
        """1 where exchanges with experts run beside another micro-batch's computation."""
        return int("ep" in self.overlap.split("+"))

    @property
    def dispatcher_index(self) -> int:
        """Position of `dispatcher` in DISPATCHERS."""
        return DISPATCHERS.index(self.dispatcher)

    @property
    def offload_index(self) -> int:
        """Position of `offload` in OFFLOADS."""
        return OFFLOADS.index(self.offload)

    def degrees(self, grid: Grid = DENSE_GRID) -> tuple[int, ...]:
        """Degrees of a grid's atoms."""
        return tuple(int(atom_degree(self, atom, grid)) for atom in grid.atoms)

    def to_document(self) -> dict[str, Any]:
        """The layout as JSON values, under the keys of the file and command contract."""
        return {
            "tp": self.tp, "cp": self.cp, "pp": self.pp, "dp": self.dp,
            "dp_shard": self.dp_shard, "dp_replicate": self.dp_replicate,
            "ep": self.ep, "etp": self.etp, "edp": self.edp, "sp": self.sp, "vp": self.vp,
            "mbs": self.mbs, "num_microbatches": self.num_microbatches,
            "zero_stage": self.zero_stage, "schedule": self.schedule,
            "stage_layers": None if self.stage_layers is None else list(self.stage_layers),
            "recompute": self.recompute,
            "recompute_layers": self.recompute_layers if self.recompute == "full" else None,
            "cp_kind": self.cp_kind,
            "cp_a2a": self.cp_a2a if self.cp_kind == "hierarchical" else None,
            "dispatcher": self.dispatcher if self.etp * self.ep > 1 else None,
            "overlap": self.overlap,
            "offload": self.offload,
        }  # fmt: skip

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Layout:
        """The layout of such values; derived keys are left aside."""
        known = {name: document[name] for name in cls.__dataclass_fields__ if name in document}
        given = {name: value for name, value in known.items() if value is not None}
        if "stage_layers" in given:
            given["stage_layers"] = tuple(given["stage_layers"])
        return cls(**given)

    def label(self) -> str:
        """The layout in one short line, without degrees of 1."""
        shown = ("tp", "cp", "ep", "etp", "pp", "vp")
        parts = [f"{a}{getattr(self, a)}" for a in shown if getattr(self, a) > 1]
        if self.cp_a2a > 1:
            parts.append(f"a2a{self.cp_a2a}")
        parts.append(f"dp{self.dp}")
        if self.dp_replicate > 1:
            parts.append(f"shard{self.dp_shard}")
        parts += [self.schedule] if self.schedule not in ("1f1b", "interleaved") else []
        parts += [f"mbs{self.mbs}", f"zero{self.zero_stage}"]
        count = f"-{self.recompute_layers}" if self.recompute_layers else ""
        parts += [self.recompute + count] if self.recompute != "none" else []
        parts += [f"offload-{self.offload}"] if self.offload != "none" else []
        return " ".join(parts)


def layout_label(document: Mapping[str, Any]) -> str:
    """The label of a layout's document: 'tp8 pp16 dp128 mbs1 zero1'."""
    return Layout.from_document(document).label()


_INT_COLUMNS = (
    "tp", "cp", "pp", "dp_shard", "dp_replicate", "ep", "etp", "vp", "mbs", "num_microbatches",
    "zero_stage", "sp", "schedule_index", "recompute_index", "recompute_layers", "cp_kind_index",
    "cp_a2a", "dispatcher_index", "offload_index",
    "overlap_tp", "overlap_dp", "overlap_pp", "overlap_ep",
)  # fmt: skip


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

    def take(self, index: Any) -> LayoutTable:
        """The rows at `index` (a mask, a slice or positions)."""
        columns = {name: _taken(getattr(self, name), index) for name in _INT_COLUMNS}
        return LayoutTable(**columns, stage_layers=self.stage_layers)

    def joined(self, other: LayoutTable) -> LayoutTable:
        """These rows and those of a table of the same split."""
        columns = {
            name: np.concatenate([getattr(self, name), getattr(other, name)])
            for name in _INT_COLUMNS
        }
        return LayoutTable(**columns, stage_layers=self.stage_layers)

    def first_like(self, i: int) -> int:
        """The first row that equals row `i` in every column."""
        columns = (getattr(self, name) for name in _INT_COLUMNS)
        return int(np.argmax(np.all([column == column[i] for column in columns], axis=0)))

    def degrees(self, grid: Grid = DENSE_GRID) -> NDArray[np.int64]:
        """Degrees of a grid's atoms, shape (N, atoms)."""
        return np.stack([atom_degree(self, atom, grid) for atom in grid.atoms], axis=1)

    def row(self, i: int) -> Layout:
        """Row `i` as a Layout of Python numbers (the one door out of numpy)."""
        values = {name: getattr(self, name)[i].item() for name in _INT_COLUMNS}
        overlap = "+".join(name for name in OVERLAPS if values.pop(f"overlap_{name}")) or "none"
        return Layout(
            schedule=SCHEDULES[values.pop("schedule_index")],
            recompute=RECOMPUTE[values.pop("recompute_index")],
            cp_kind=CP_KINDS[values.pop("cp_kind_index")],
            dispatcher=DISPATCHERS[values.pop("dispatcher_index")],
            offload=OFFLOADS[values.pop("offload_index")],
            sp=bool(values.pop("sp")),
            overlap=overlap,
            stage_layers=self.stage_layers,
            **values,
        )

    @classmethod
    def uniform(cls, layout: Layout, length: int = 1) -> LayoutTable:
        """A table of one layout over and over."""
        columns = {
            n: np.broadcast_to(np.int64(getattr(layout, n)), (length,)) for n in _INT_COLUMNS
        }
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
            **{n: np.array([getattr(r, n) for r in rows], dtype=np.int64) for n in _INT_COLUMNS},
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
