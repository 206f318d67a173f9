"""Measured collectives: one operation on one configuration over message sizes, from files.

Files are nccl-tests text, or JSON lines with the fields of the published rows: id, gpu, nodes,
ranks, network, op, source, size_bytes_time_us [[bytes, µs], …], not_scored (points left out).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
from annotated_types import Ge, Gt, Le, MinLen
from numpy.typing import NDArray
from pydantic import ConfigDict, ValidationError

from planner.errors import InputError, Place
from planner.evidence.nccl_tests import OPERATIONS, NcclLog, parse_log
from planner.inputs.complaints import input_error
from planner.inputs.documents import from_plain
from planner.inputs.files import here_or_shipped
from planner.inputs.json_text import json_value
from planner.inputs.text import file_text
from planner.inputs.values import Strict

PUBLISHED_COLLECTIVES = "scenarios/published/nccl_measurements.jsonl"
"""The runs that ship."""

Floats = NDArray[np.float64]

_Count = Annotated[int, Ge(1), Le(2**24)]
_Point = tuple[Annotated[int, Ge(1), Le(2**50)], Annotated[float, Gt(0)]]


class _Row(Strict):
    model_config = ConfigDict(extra="ignore")

    id: str
    gpu: str
    nodes: _Count
    ranks: _Count
    network: str
    op: str
    source: str = ""
    size_bytes_time_us: Annotated[tuple[_Point, ...], MinLen(1)]
    not_scored: tuple[_Point, ...] = ()


@dataclass(frozen=True, slots=True)
class Sweep:
    """One operation measured over message sizes; None where the file does not say.

    num_bytes: rising, as nccl-tests counts them: all that a gather collects, otherwise what one
    rank has. seconds: of one operation; the better of out-of-place and in-place. Both have
    the shape (sizes,).
    path, line: where it was read.
    """

    name: str
    operation: str
    accelerator: str | None
    num_nodes: int | None
    num_ranks: int | None
    network: str | None
    source: str
    num_bytes: Floats
    seconds: Floats
    path: str
    line: int
    notes: tuple[str, ...] = ()

    @property
    def degraded(self) -> bool:
        """Whether the publisher says that the cluster was not in order."""
        return "degraded" in (self.network or "").lower()


def bus_factor(operation: str, num_ranks: int) -> float:
    """Bus bandwidth over algorithm bandwidth, which is bytes over seconds.

    Source: nccl-tests, doc/PERFORMANCE.md.
    """
    sent = (num_ranks - 1) / num_ranks  # a rank keeps its own n-th of the data
    if operation == "all_reduce":
        return 2 * sent
    return sent if operation in ("all_gather", "reduce_scatter", "alltoall") else 1.0


def read_sweeps(paths: Iterable[str | Path]) -> list[Sweep]:
    """The sweeps of all files, in order.

    Raises:
        InputError: a file cannot be read, or holds neither a table of nccl-tests nor JSON lines.
    """
    return [sweep for path in paths for sweep in _read(path)]


def _read(path: str | Path) -> list[Sweep]:
    file = here_or_shipped(path)
    text = file_text(file, "nccl-tests text or JSON lines", shown=str(path), lenient=True)
    if text.lstrip().startswith("{"):
        lines = enumerate(text.split("\n"), start=1)
        return [_of_row(line, str(path), number) for number, line in lines if line.strip()]
    logs = parse_log(text, str(path))
    return [_of_log(log, is_only=len(logs) == 1) for log in logs]


def _of_log(log: NcclLog, is_only: bool) -> Sweep:
    name = Path(log.path).stem
    return Sweep(
        name=name if is_only else f"{name}:{log.line}",
        operation=log.operation,
        accelerator=log.accelerator,
        num_nodes=log.num_nodes,
        num_ranks=log.num_ranks,
        network=log.network,
        source=log.source or log.path,
        num_bytes=np.array(log.sizes_bytes, dtype=float),
        seconds=np.array(log.microseconds, dtype=float) * 1e-6,
        path=log.path,
        line=log.line,
        notes=log.notes,
    )


def _of_row(line: str, path: str, number: int) -> Sweep:
    row = _row(line, path, number)
    if row.op not in OPERATIONS:
        raise InputError(
            f"the operation '{row.op}' is not one that nccl-tests runs",
            path=path, line=number, key="op", value=row.op,
            allowed=", ".join(sorted(set(OPERATIONS.values()))),
        )  # fmt: skip
    if row.ranks % row.nodes:
        raise InputError(
            f"{row.ranks} ranks do not fill {row.nodes} nodes evenly",
            path=path, line=number, key="ranks", value=row.ranks, allowed="a multiple of nodes",
        )  # fmt: skip
    points = sorted(set(row.size_bytes_time_us) - set(row.not_scored))
    left_out = len(row.size_bytes_time_us) - len(points)
    table = np.array(points, dtype=float).reshape(-1, 2)
    return Sweep(
        name=row.id,
        operation=OPERATIONS[row.op],
        accelerator=row.gpu,
        num_nodes=row.nodes,
        num_ranks=row.ranks,
        network=row.network,
        source=row.source,
        num_bytes=table[:, 0],
        seconds=table[:, 1] * 1e-6,
        path=path,
        line=number,
        notes=(f"{left_out} points marked not_scored are left out",) if left_out else (),
    )


def _row(line: str, path: str, number: int) -> _Row:
    document = json_value(line, path, "one JSON object a line", number)
    try:
        return _Row.model_validate_json(json.dumps(document))
    except ValidationError as error:
        problem = input_error(error, from_plain(document), _Row)
        raise problem.located(Place(path, number, key=problem.key)) from None
