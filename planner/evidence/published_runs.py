"""Published training runs as they are in JSON lines: one measured run a line, with its layout.

`row_keys` says what is done with every key.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge, Gt, Le
from pydantic import ConfigDict, ValidationError

from planner.errors import InputError, Place
from planner.inputs.complaints import input_error
from planner.inputs.documents import from_plain
from planner.inputs.files import here_or_shipped
from planner.inputs.json_text import json_value
from planner.inputs.text import file_text
from planner.inputs.values import Strict
from planner.problem.software import ZeroStage

PUBLISHED_RUNS = "scenarios/published/measured_runs.jsonl"
"""The runs that ship."""

_Positive = Annotated[float, Gt(0)]
_Size = Annotated[int, Ge(1), Le(2**31)]
_NumAccelerators = Annotated[int, Ge(1), Le(2**20)]


class UnscorableError(Exception):
    """A row that cannot be costed; `reason` is the name it is counted under."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class _Fields(Strict):
    model_config = ConfigDict(extra="ignore")


class Measured(_Fields):
    """What the source prints: whether the run ran out of memory, its peak in 10^9 bytes, and the
    source's own MFU and HFU, on whatever convention."""

    oom: bool
    peak_mem_gb: _Positive | None = None
    mfu: _Positive | None = None
    hfu: _Positive | None = None


class Standard(_Fields):
    """Measurements on one convention: seconds of a step, MFU against the dense BF16 peak."""

    iter_time_s: _Positive | None = None
    mfu_bf16peak_causal: _Positive | None = None


class PublishedRun(_Fields):
    """One row; null means that the source does not say.

    Keys that no prediction reads are left out, and unknown ones are let pass: other people's rows
    say more. Units are those of scenarios/published/README.md: seq_len in tokens, gbs and mbs in
    sequences, nic_gbps_per_gpu in Gbit/s.
    """

    id: str
    source: str
    quality: str
    n_layers: _Size | None
    hidden: _Size | None
    ffn_hidden: _Size | None
    n_heads: _Size | None
    n_kv_heads: _Size | None
    head_dim: _Size | None
    vocab: _Size | None
    seq_len: _Size | None
    gated_mlp: bool | None
    tied_embeddings: bool | None
    moe: dict[str, Any] | None
    gpu: str | None
    n_gpus: _NumAccelerators | None
    gpus_per_nvlink_domain: _Size | None
    nic_gbps_per_gpu: _Positive | None
    dtype: str | None
    tp: _Size | None
    sp: bool | None
    cp: _Size | None
    pp: _Size | None
    vp: _Size | None
    dp: _Size | None
    ep: _Size | None = None
    etp: _Size | None = None
    zero_stage: ZeroStage | None
    mbs: _Size | None
    gbs: _Size | None
    grad_accum: _Size | None
    recompute: str | None
    attention: str | None
    overlap: dict[str, Any] | None
    notes: str | None = None
    framework: str | None
    measured: Measured
    std: Standard
    model_name: str = ""
    gpu_family: str | None = None
    split_hint: str | None = None
    rank_group: str | None = None
    config_key: str | None = None
    task: str | None = None

    @property
    def publication(self) -> str:
        """Short name that rows of one publication share.

        The repository (`owner/name`) a source starts with, else its arXiv number, else the text
        before the first `@`, `;`, `,` or `(`.
        """
        # rows of one repository cite many of its pages; papers are cited with and without a title
        repository = re.match(r"[\w.-]+/[\w.-]+", self.source)
        if repository:
            return repository.group()
        number = re.search(r"arXiv[ :]*(\d{4}\.\d{4,5})", self.source)
        return f"arXiv {number.group(1)}" if number else re.split("[@;,(]", self.source)[0].strip()

    @property
    def repeat_key(self) -> str:
        """What repeats of one configuration share."""
        return self.config_key or self.id


def read_runs(path: str | Path) -> list[PublishedRun]:
    """The rows of a JSON lines file (of the current folder, else shipped), in order.

    Raises:
        InputError: the file cannot be read, or a line is no JSON object with the fields of a row.
    """
    file = here_or_shipped(path)
    return runs_of(file_text(file, "a readable JSON lines file", shown=str(path)), str(path))


def runs_of(text: str, path: str) -> list[PublishedRun]:
    """The rows of the text of such a file.

    Raises:
        InputError: as `read_runs`.
    """
    # not splitlines(): JSON strings may contain other line separators, such as U+2028
    lines = enumerate(text.split("\n"), start=1)
    runs = [read_run(line, path, number) for number, line in lines if line.strip()]
    if not runs:
        raise InputError("has no rows", path=path, allowed="one JSON object a line")
    return runs


def read_run(line: str, path: str, number: int) -> PublishedRun:
    """The row of one line.

    Raises:
        InputError: as `read_runs`, with the path and the line's number.
    """
    document = json_value(line, path, "one JSON object a line", number)
    if not isinstance(document, dict):
        raise InputError(
            "is not a JSON object", path=path, line=number, value=document, allowed="a row's fields"
        )
    try:
        return PublishedRun.model_validate(document)
    except ValidationError as error:
        problem = input_error(error, from_plain(document), PublishedRun)
        raise problem.located(Place(path, number, key=problem.key)) from None
