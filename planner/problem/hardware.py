"""Accelerators: peaks, memory, and the achieved shares that kernels are costed with."""

import re
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from planner.errors import InputError
from planner.inputs.files import names, read, resolve
from planner.inputs.quantities import (
    Bytes,
    BytesPerSecond,
    Efficiency,
    Figure,
    FlopsPerSecond,
    NotNegative,
    Positive,
    Seconds,
)
from planner.inputs.units import format_quantity, parse_quantity
from planner.inputs.values import Strict
from planner.problem.precision import Precision

AttentionBackend = Literal["flash", "flash-v1", "flash-v2", "flash-v3", "fused-softmax", "naive"]
"""Which kernels compute attention; `flash` is FlashAttention of the version usual on the type."""


class GemmCoefficients(Strict):
    """Matmul rate: efficiency · peak · K / (K + k_half), in output tiles of tile_m × tile_n.

    K is the inner dimension; `overhead` is the time of a launch, whatever its size.
    """

    efficiency: Efficiency
    k_half: NotNegative
    tile_m: Positive
    tile_n: Positive
    overhead_seconds: Seconds = Field(alias="overhead")


class AttentionCoefficients(Strict):
    """Shares of the dense 16-bit peak, the causal half counted once, backward as 2.5 × forward.

    They are reached by long sequences: a kernel over s tokens reaches s / (s + sequence_half). They
    are of heads of 128 elements; a score costs an exponential whatever the head's size, as much as
    the products of `head_half` elements, so that smaller heads reach less. Absent: no less.
    """

    forward: Efficiency
    backward: Efficiency
    sequence_half: NotNegative
    head_half: NotNegative | None = None


class Host(Strict):
    """One accelerator's share of its host: the link to it, each way, and the host's memory."""

    link_bytes_per_second: BytesPerSecond = Field(alias="link_bandwidth")
    link_efficiency: Efficiency
    memory_bytes: Bytes = Field(alias="memory_capacity")
    memory_bytes_per_second: BytesPerSecond = Field(alias="memory_bandwidth")
    memory_efficiency: Efficiency

    @property
    def achieved_link(self) -> float:
        """Bytes per second that copies of pinned memory reach, each way."""
        return float(self.link_bytes_per_second) * float(self.link_efficiency)

    @property
    def achieved_memory(self) -> float:
        """Bytes per second that the host's processors stream."""
        return float(self.memory_bytes_per_second) * float(self.memory_efficiency)


class _OneForAll:
    """Marks a mapping by precision in whose place one figure may stand."""

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        each = handler(schema)
        return {"anyOf": [each["additionalProperties"], each]}


class Accelerator(Strict):
    """One accelerator; peaks are dense tensor FLOP/s, hbm_bytes is what the driver reports.

    `aliases` are other names of the accelerator type, as measurements and users write them;
    `usual_topology` is the shipped topology that it mostly comes in.
    """

    name: str
    aliases: tuple[str, ...] = ()
    usual_topology: str | None = None
    peak_flops: dict[Precision, FlopsPerSecond] = Field(alias="peak", min_length=1)
    vector_flops: FlopsPerSecond = Field(alias="vector_peak")
    hbm_bytes_per_second: BytesPerSecond = Field(alias="hbm_bandwidth")
    hbm_bytes: Bytes = Field(alias="hbm_capacity")
    num_multiprocessors: Positive = Field(alias="multiprocessors")
    l2_bytes: Bytes = Field(alias="l2")
    shared_memory_bytes: Bytes | None = Field(default=None, alias="shared_memory")
    hbm_efficiency: Efficiency
    # Whether the flex dispatcher's kernels (DeepEP, HybridEP) run on it.
    dispatch_kernels: bool = True
    # Of the usual server of this accelerator type; absent: nothing can be offloaded.
    host: Host | None = None
    # Share of the matmul rate of short runs that a step keeps, by the precision of its main
    # matmuls: 16-bit products draw the most power, and clocks fall to the power limit. One figure
    # for all is allowed.
    sustained_fraction: Annotated[dict[Precision, Efficiency], _OneForAll()] = Field(
        alias="sustained", min_length=1
    )
    gemm: dict[Precision, GemmCoefficients] = Field(min_length=1)
    attention: dict[AttentionBackend, AttentionCoefficients] = Field(min_length=1)

    @model_validator(mode="before")
    @classmethod
    def _one_clock_for_all(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        key = "sustained" if "sustained" in values else "sustained_fraction"
        given, peaks = values.get(key), values.get("peak", values.get("peak_flops"))
        is_one = isinstance(given, float | int) or (isinstance(given, dict) and "value" in given)
        if is_one and isinstance(peaks, dict):
            return {**values, key: dict.fromkeys(peaks, given)}
        return values

    @field_validator("peak_flops")
    @classmethod
    def _peaks_are_dense(
        cls, peaks: dict[Precision, Figure], info: ValidationInfo
    ) -> dict[Precision, Figure]:
        # Data sheets print peaks with 2:4 sparsity, twice the dense ones, in larger type.
        if not (info.context or {}).get("from_file"):
            return peaks
        given_names = (info.data.get("name", ""), *info.data.get("aliases", ()))
        dense = _shipped_peaks(tuple(map(folded, given_names)))
        for precision, peak in peaks.items():
            if precision in dense and 1.9 <= peak / dense[precision] <= 2.1:
                shown = format_quantity(peak, "FLOP/s")
                right = format_quantity(dense[precision], "FLOP/s")
                raise InputError(
                    f"{shown} is the sparse figure; dense is {right}",
                    key=f"{precision}.value",
                    value=shown,
                    allowed=f"the dense peak of {given_names[0]}",
                    nearest=right,
                )
        return peaks

    @model_validator(mode="after")
    def _lower_precision_is_no_slower(self) -> "Accelerator":
        sixteen = max(
            (self.peak_flops[p] for p in ("bf16", "fp16") if p in self.peak_flops), default=0
        )
        for precision in ("fp8", "fp4"):
            if precision in self.peak_flops and self.peak_flops[precision] < sixteen:
                raise InputError(
                    f"the {precision} peak is below the 16-bit one",
                    key=f"peak.{precision}.value",
                    allowed=f"at least {format_quantity(sixteen, 'FLOP/s')}; leave it out if the "
                    "accelerator has no such units",
                )
        return self

    @model_validator(mode="after")
    def _gemm_has_peaks(self) -> "Accelerator":
        for precision in self.gemm:
            if precision not in self.peak_flops:
                raise InputError(
                    f"there is no peak for {precision}",
                    key=f"gemm.{precision}",
                    allowed=f"the precisions of peak: {', '.join(self.peak_flops)}",
                )
            if precision not in self.sustained_fraction:
                raise InputError(
                    f"there is no sustained share for {precision}",
                    key="sustained",
                    allowed=f"one figure, or one for each of {', '.join(self.gemm)}",
                )
        return self

    def ridge(self, precision: Precision) -> float:
        """Return the FLOP/byte at which a kernel leaves the HBM roof: peak / HBM bandwidth."""
        return self.peak_flops[precision] / self.hbm_bytes_per_second


# ---------------------------------------------------------------- accelerators by name

SHORTEST_NAME = 4
"""Letters and digits below which a name says too little to be recognised inside another."""


def folded(name: str) -> str:
    """Return a name without letter case and punctuation, as names of accelerators are compared."""
    return re.sub(r"[\W_]+", "", name.casefold())


@cache
def _shipped_peaks(folded_names: tuple[str, ...]) -> dict[str, float]:
    """Return the dense peaks of the shipped accelerator that the names mean, else nothing.

    An accelerator is meant by one of its names, else by the longest of its names that is part of
    a given one ("NVIDIA H100 SXM5").
    """
    best_score, peaks = 0, {}
    for shipped in names("accelerator"):
        # Read as text first: reading all files as YAML would take most of a second.
        text = resolve("accelerator", shipped).read_text("utf-8")
        known_names = {folded(name) for name in _names_in(text)}
        scores = [
            len(name) + 1000 * (name == given)
            for name in known_names
            for given in folded_names
            if len(name) >= SHORTEST_NAME and name in given
        ]
        if scores and max(scores) > best_score:
            best_score, peaks = max(scores), _peaks_of(shipped)
    return peaks


def _names_in(text: str) -> list[str]:
    """Return the name and aliases in the text of a shipped accelerator's file."""
    lines = re.findall(r"^(?:name|aliases):.*$", text, re.MULTILINE)
    return [word for line in lines for word in re.split(r"[\[\],\"']|^\w+:", line) if word.strip()]


def _peaks_of(shipped: str) -> dict[str, float]:
    raw = read(resolve("accelerator", shipped)).plain()
    return {
        precision: parse_quantity(peak["value"], "FLOP/s")
        for precision, peak in raw["peak"].items()
    }
