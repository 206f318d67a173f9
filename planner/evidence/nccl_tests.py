"""Text that nccl-tests and rccl-tests print, read into values: one `NcclLog` for each table.

    #       size         count      type   redop    root     time   algbw   busbw #wrong  ...
    #        (B)    (elements)                               (us)  (GB/s)  (GB/s)         ...
         1048576        262144     float     sum      -1    71.90   14.58   27.34      0  ...

Rows hold one or two groups of columns, out of place and in place. Older versions print no root,
no redop, or an `error` instead of a count of wrong results: the header says which. Lines of other
programs between the rows are passed over, and so are the labels of srun and mpirun before them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from planner.errors import InputError
from planner.inputs.text import natural_number

OPERATIONS = {
    "all_reduce": "all_reduce", "allreduce": "all_reduce",
    "all_gather": "all_gather", "allgather": "all_gather",
    "reduce_scatter": "reduce_scatter", "reducescatter": "reduce_scatter",
    "alltoall": "alltoall", "all_to_all": "alltoall",
    "sendrecv": "sendrecv", "send_recv": "sendrecv",
    "broadcast": "broadcast",
}  # fmt: skip
"""How programs and files name an operation → its name here."""

HEADERLESS = {13: (5, 4), 9: (5, 4), 12: (4, 4), 8: (4, 4), 11: (3, 4), 7: (3, 4)}
"""Columns of a row → leading columns and columns of a group, where the header was cut away."""

ERROR_TOLERANCE = {"half": 1e-2, "bfloat16": 1e-1, "float": 1e-5, "double": 1e-12}
"""Largest `error` that old versions let pass, by type; integers must agree."""

_LABEL = re.compile(r"^\s*(\[[\d,]+\]<std\w+>:?|\d+:(?=\s))\s?")
_RANK = re.compile(r"#\s*Rank\s+(\d+)\b.*?\bon\s+(\S+)\s+device\s+\d+\s*(?:\[[^\]]*\])?\s*(.*)")
_PROGRAM = re.compile(r"(?:\b|_)(" + "|".join(OPERATIONS) + r")(?:_perf)?(?:\b|_)", re.IGNORECASE)
_CONFIG = re.compile(r"#\s*config:\s*(.*)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class NcclLog:
    """One table: what ran where, and the better of out-of-place and in-place times.

    Where a size was run more than once, its median counts. `notes` says what was left out and why.
    None stands for what the text does not say.
    """

    path: str
    line: int  # of the table's first row
    operation: str
    num_ranks: int | None
    num_nodes: int | None
    accelerator: str | None
    network: str | None
    source: str | None
    sizes_bytes: tuple[int, ...]
    microseconds: tuple[float, ...]
    notes: tuple[str, ...]


@dataclass(slots=True)
class _Header:
    """What the lines before a table say."""

    config: dict[str, str] = field(default_factory=dict)
    ranks: dict[int, tuple[str, str]] = field(default_factory=dict)  # rank → host, accelerator
    operation: str | None = None
    columns: tuple[int, int, str] | None = None  # leading, of a group, name of the check's column


@dataclass(slots=True)
class _Table:
    header: _Header
    rows: list[tuple[int, int, float]] = field(default_factory=list)  # line, bytes, microseconds
    notes: list[str] = field(default_factory=list)


def parse_log(text: str, path: str) -> list[NcclLog]:
    """The tables of a text, in order; `path` names it in errors, and may name the operation.

    Raises:
        InputError: it holds no table, or a row is not one of a table.
    """
    tables = _tables(text.splitlines(), path)
    logs = [_log(table, path) for table in tables if table.rows or table.notes]
    if not logs:
        raise InputError(
            "holds no table of nccl-tests",
            path=path,
            allowed="rows of size, count, type, redop, root, time, algbw, busbw, #wrong",
        )
    return logs


def _tables(lines: Sequence[str], path: str) -> list[_Table]:
    header = _Header()
    tables: list[_Table] = []
    last_row = max((n for n, line in enumerate(lines, 1) if _is_row(_bare(line))), default=0)
    fresh = True  # whether the next row starts a table
    for number, raw in enumerate(lines, 1):
        line = _bare(raw)
        if _is_row(line):
            if fresh:
                tables.append(_Table(_copy(header)))
                fresh = False
            _add_row(tables[-1], line.split(), path, number, is_last=number == last_row)
            continue
        if not fresh and _starts_table(line):
            fresh = True
            header.operation = None
        _add_header(header, line)
    return tables


def _bare(line: str) -> str:
    return _LABEL.sub("", line).strip()


def _is_row(line: str) -> bool:
    fields = line.split()
    return (
        len(fields) > 2
        and natural_number(fields[0]) is not None
        and natural_number(fields[1]) is not None
    )


def _starts_table(line: str) -> bool:
    names = line.lstrip("#").split()
    is_columns = names[:1] == ["size"] and "time" in names
    return is_columns or "nThread" in line or "Collective test starting" in line


def _copy(header: _Header) -> _Header:
    return _Header(dict(header.config), dict(header.ranks), header.operation, header.columns)


def _add_header(header: _Header, line: str) -> None:
    names = line.lstrip("#").split()
    if names[:1] == ["size"] and "time" in names:
        header.columns = _columns(names)
        return
    if found := _CONFIG.match(line):
        header.config = _config(found.group(1))
        return
    if (found := _RANK.match(line)) and (rank := natural_number(found.group(1))) is not None:
        _, host, accelerator = found.groups()
        if rank == 0:
            header.ranks.clear()
        header.ranks[rank] = (host, accelerator.strip())
        return
    if "_perf" in line or "Collective test" in line:
        header.operation = _operation_in(line) or header.operation


def _columns(names: Sequence[str]) -> tuple[int, int, str]:
    first = names.index("time")
    group = next((i for i, name in enumerate(names[first + 1 :], 1) if name == "time"), None)
    group = group or len(names) - first
    return first, group, names[first + group - 1]


def _config(text: str) -> dict[str, str]:
    """GPU=H100-SXM nodes=2 … net=IB NDR op=all_reduce | source: …: values may hold blanks."""
    before, _, source = text.partition("| source:")
    parts = re.split(r"(?:^|\s)(GPU|nodes|gpus|ranks|net|op|dtype)=", before)
    found = dict(zip((key.lower() for key in parts[1::2]), parts[2::2], strict=True))
    found = {key: value.strip() for key, value in found.items()}
    if source.strip():
        found["source"] = source.strip()
    return found


def _operation_in(text: str) -> str | None:
    found = _PROGRAM.search(text)
    return OPERATIONS[found.group(1).lower()] if found else None


def _add_row(table: _Table, fields: Sequence[str], path: str, line: int, *, is_last: bool) -> None:
    known = table.header.columns
    lead, group, check = known or (*HEADERLESS.get(len(fields), (0, 0)), "#wrong")
    if not lead or len(fields) not in (lead + group, lead + 2 * group):
        if is_last:  # a log cut short
            table.notes.append(f"line {line} is cut short")
            return
        wanted = f"{lead + group} or {lead + 2 * group}" if lead else "9 or 13"
        raise InputError(
            f"a row of {len(fields)} columns", path=path, line=line, allowed=f"{wanted} columns"
        )
    num_bytes, starts = int(fields[0]), range(lead, len(fields), group)
    times = [_number(fields[start], path, line) for start in starts]
    if any(_is_wrong(fields[start + group - 1], check, fields[2]) for start in starts):
        table.notes.append(f"line {line}: wrong results at {num_bytes} bytes, left out")
    elif num_bytes > 0 and min(times) > 0:
        table.rows.append((line, num_bytes, min(times)))


def _number(text: str, path: str, line: int) -> float:
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not 0 <= number < float("inf"):
        raise InputError(
            f"the time '{text}' is not a number",
            path=path, line=line, value=text, allowed="microseconds >= 0",
        )  # fmt: skip
    return number


def _is_wrong(text: str, column: str, kind: str) -> bool:
    """Whether a check failed: wrong results counted, or an old version's error beyond rounding."""
    try:
        number = float(text)
    except ValueError:  # N/A: not checked
        return False
    return number > (0 if "wrong" in column else ERROR_TOLERANCE.get(kind, 0.0))


def _log(table: _Table, path: str) -> NcclLog:
    header, config = table.header, table.header.config
    ranks = header.ranks
    first = table.rows[0][0] if table.rows else 1
    num_ranks = _whole(config.get("ranks")) or (max(ranks) + 1 if ranks else None)
    hosts = {host for host, _ in ranks.values()}
    accelerator = config.get("gpu") or next((name for _, name in ranks.values() if name), None)
    sizes: dict[int, list[float]] = {}
    for _, num_bytes, microseconds in table.rows:
        sizes.setdefault(num_bytes, []).append(microseconds)
    notes = list(table.notes)
    if ranks and len(ranks) < max(ranks) + 1:
        notes.append(f"only {len(ranks)} of {max(ranks) + 1} ranks are listed")
    return NcclLog(
        path=path,
        line=first,
        operation=_operation(header, path, first),
        num_ranks=num_ranks,
        num_nodes=_whole(config.get("nodes")) or len(hosts) or None,
        accelerator=accelerator,
        network=config.get("net"),
        source=config.get("source"),
        sizes_bytes=tuple(sorted(sizes)),
        microseconds=tuple(median(sizes[size]) for size in sorted(sizes)),
        notes=tuple(notes),
    )


def _whole(text: str | None) -> int | None:
    found = re.match(r"\d+", text or "")
    return natural_number(found.group()) or None if found else None


def _operation(header: _Header, path: str, line: int) -> str:
    stated = (header.config.get("op") or "").split("(")[0]
    candidates: Iterator[str | None] = iter(
        (_operation_in(stated), header.operation, _operation_in(Path(path).name))
    )
    found = next((name for name in candidates if name), None)
    if found is None:
        raise InputError(
            "no line says which operation ran",
            path=path,
            line=line,
            allowed="a line or a file name with one of "
            + ", ".join(f"{name}_perf" for name in sorted(set(OPERATIONS.values()))),
        )
    return found
