"""The roofline of a topology, or of a scenario with the groups of its plan on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from planner.cost import roofline as roof
from planner.cost.collectives import duration
from planner.cost.context import TierArrays
from planner.cost.prices import price
from planner.errors import UnknownNameError, nearest_of
from planner.files import load, names, read, resolve
from planner.planfile import GroupReport, Plan
from planner.planning import plan
from planner.problem.hardware import ELEMENT_BYTES, Accelerator, Precision
from planner.problem.scenario import Scenario, load_scenario
from planner.problem.topology import Topology
from planner.roofs import (
    GroupPoint,
    Level,
    Messages,
    Move,
    Operator,
    PartRidges,
    Roofline,
    Wall,
)

ACTIVATION_BYTES = 2.0
"""Bytes per element of activations and of matmul outputs, whatever the matmul's precision."""

PRICED_AS = {
    "send_receive": "pair",
    "all_gather": "gather",
    "all_reduce": "all_reduce",
    "all_to_all": "all_to_all",
}

MESSAGE_BYTES = tuple(float(2.0 ** (k / 2)) for k in range(2 * 10, 2 * 35 + 1))
"""1 KiB to 32 GiB, two samples an octave."""

FILES = (".yaml", ".yml", ".json")

DECODED_BATCH = 32
"""Sequences decoded together in the batched example."""

GENERATIONS: Mapping[str, tuple[str, ...]] = {
    "NVIDIA": (
        "v100-sxm2-32gb", "a100-sxm-80gb", "h100-sxm-80gb", "h200-sxm-141gb", "b200-sxm-180gb",
        "gb200", "b300", "gb300",
    ),
    "AMD": ("mi250x", "mi300x", "mi325x", "mi355x"),
}  # fmt: skip
"""Shipped parts of two families in the order they came."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of the kernels that are placed as examples; tokens are those of one micro-batch."""

    tokens: int
    sequence_length: int
    hidden: int
    columns: int  # of the MLP's first product, on one rank
    head_dim: int
    group: int  # query heads per key-value head
    expert: tuple[int, int] | None = None  # rows and columns of an expert's first product


REFERENCE = Sizes(8192, 8192, 8192, 8192, 128, 8)
"""Where no scenario says: a square product of 8192 and the heads of a 70B model."""


def roofline(subject: Scenario | Topology, time_limit_seconds: float | None = None) -> Roofline:
    """The roofs of a topology; of a scenario, which is planned, with its groups under them.

    A scenario that no layout fits gives a roofline whose `plan` says why.

    Raises:
        PlannerError: the scenario cannot be costed.
    """
    if isinstance(subject, Topology):
        return _roofline(subject, _first_precision(subject.accelerator), REFERENCE)
    found = plan(subject, 1, time_limit_seconds)
    return roofline_of(subject, found)


def roofline_of(scenario: Scenario, found: Plan) -> Roofline:
    """The roofs of a scenario with the groups of a plan of it."""
    peak = float(scenario.topology.accelerator.peak_flops[scenario.training.peak_key])
    points = tuple(
        _point(name, group, peak)
        for name, group in found.groups.items()
        if group.members > 1 and group.bytes > 0
    )
    return _roofline(
        scenario.topology,
        scenario.training.peak_key,
        _sizes(scenario, found),
        dict(found.fill or {}),
        points,
        found,
    )


def load_subject(
    name_or_path: str | Path, overrides: Mapping[str, str] | None = None
) -> Scenario | Topology:
    """A scenario or a topology by name or path; a file with `tiers` is a topology.

    Raises:
        UnknownNameError: neither ships under that name.
    """
    text = str(name_or_path)
    scenarios, topologies = names("scenario"), names("topology")
    if isinstance(name_or_path, Path) or "/" in text or text.lower().endswith(FILES):
        is_topology = read(resolve("topology", name_or_path)).child("tiers") is not None
    elif text in scenarios or text in topologies:
        is_topology = text in topologies
    else:
        raise UnknownNameError(
            f"unknown topology or scenario '{text}'",
            value=text,
            allowed="the path of a YAML file, or a name of `planner list topologies` or "
            "`planner list scenarios`",
            nearest=nearest_of(text, [*topologies, *scenarios]),
        )
    if is_topology:
        return load(name_or_path, "topology", Topology, overrides)
    return load_scenario(name_or_path, overrides)


def generations(beside: Roofline | None = None) -> tuple[PartRidges, ...]:
    """HBM ridges of shipped parts by family and generation, then those of another roofline."""
    found = [
        PartRidges(part.name, family, _ridges(part, float(part.hbm_bytes_per_second)))
        for family, members in GENERATIONS.items()
        for part in (load(name, "accelerator", Accelerator) for name in members)
    ]
    if beside is not None and beside.accelerator not in {part.name for part in found}:
        found.append(PartRidges(beside.accelerator, "", beside.levels[0].ridges))
    return tuple(found)


# ---------------------------------------------------------------- parts


def _first_precision(part: Accelerator) -> Precision:
    return "bf16" if "bf16" in part.peak_flops else next(iter(part.peak_flops))


def _sizes(scenario: Scenario, found: Plan) -> Sizes:
    model = scenario.model
    layout = found.layout or {"mbs": 1, "tp": 1, "cp": 1, "ep": 1, "etp": 1}
    tokens = max(1, layout["mbs"] * scenario.training.sequence_length // layout["cp"])
    up, expert = 1 + model.gated_mlp, None
    # the MLP's first product; of a layer with experts the shared ones', or the output projection
    columns = up * model.ffn_hidden_size
    if model.moe is not None:
        columns = up * model.shared_ffn_hidden_size or model.hidden_size
        copies = tokens // layout["tp"] * model.moe.top_k * layout["ep"] * layout["etp"]
        width = up * model.moe.expert_ffn_hidden_size // layout["etp"]
        expert = (max(1, copies // model.moe.num_experts), max(1, width))
    return Sizes(
        tokens=tokens,
        sequence_length=scenario.training.document_length,
        hidden=model.hidden_size,
        columns=max(1, columns // layout["tp"]),
        head_dim=model.qk_head_dim,
        group=model.num_attention_heads // model.num_key_value_heads,
        expert=expert,
    )


def _roofline(
    topology: Topology,
    precision: Precision,
    sizes: Sizes,
    fill: Mapping[str, int] | None = None,
    groups: tuple[GroupPoint, ...] = (),
    found: Plan | None = None,
) -> Roofline:
    part = topology.accelerator
    return Roofline(
        topology=topology.name,
        accelerator=part.name,
        precision=precision,
        peak_flops={name: float(peak) for name, peak in part.peak_flops.items()},
        vector_flops=float(part.vector_flops),
        levels=tuple(_levels(topology, fill or {})),
        operators=tuple(_operators(part, precision, sizes)),
        moves=tuple(_moves(part, precision, sizes)),
        groups=groups,
        plan=found,
    )


def _ridges(part: Accelerator, bytes_per_second: float) -> dict[str, float]:
    peaks = [*part.peak_flops.items(), ("vector", part.vector_flops)]
    return {name: float(roof.ridge(peak, bytes_per_second)) for name, peak in peaks}


def _levels(topology: Topology, fill: Mapping[str, int]) -> Iterator[Level]:
    part = topology.accelerator
    hbm = float(part.hbm_bytes_per_second)
    yield Level("hbm", hbm, hbm * float(part.hbm_efficiency), _ridges(part, hbm), {})
    tiers = TierArrays.of(topology)
    ramp = tuple(float(tier.fabric.ramp) for tier in topology.tiers)
    for t, tier in enumerate(topology.tiers):
        used = fill.get(tier.name, 1)
        members = used if used > 1 else tier.width
        yield Level(
            name=tier.name,
            bytes_per_second=tier.bytes_per_second,
            reached_bytes_per_second=float(tiers.gather[t]),
            ridges=_ridges(part, tier.bytes_per_second),
            messages={
                collective: _messages(collective, members, t, tiers, ramp)
                for collective in PRICED_AS
                if members > 1
            },
        )


def _messages(
    collective: str, members: int, tier: int, tiers: TierArrays, ramp: tuple[float, ...]
) -> Messages:
    split = [float(members) if t == tier else 1.0 for t in range(len(ramp))]
    unit = price(PRICED_AS[collective], split, tiers)
    sizes = np.array(MESSAGE_BYTES)
    cost = unit.cost(1.0, sizes)
    knee = roof.latency_knee(unit.latency_seconds, np.max(np.stack(unit.busy_seconds)))
    return Messages(
        collective=collective,
        members=members,
        latency_seconds=float(unit.latency_seconds),
        knee_bytes=float(knee),
        num_bytes=MESSAGE_BYTES,
        seconds=tuple(float(s) for s in duration(cost, ramp)),
    )


def _operators(part: Accelerator, precision: Precision, sizes: Sizes) -> Iterator[Operator]:
    s, a = ELEMENT_BYTES[precision], ACTIVATION_BYTES
    sixteen = _sixteen(part)
    n, d = sizes.sequence_length, sizes.head_dim

    def placed(
        name: str, detail: str, intensity: float, peak: float, unit: str = "tensor"
    ) -> Operator:
        ridge = float(roof.ridge(peak, part.hbm_bytes_per_second))
        return Operator(
            name=name,
            sizes=detail,
            unit="vector" if unit == "vector" else "tensor",
            intensity=float(intensity),
            ridge=ridge,
            attainable_flops=float(roof.attainable(intensity, peak, part.hbm_bytes_per_second)),
            wall="compute" if intensity >= ridge else "bandwidth",
        )

    peak, vector = float(part.peak_flops[precision]), float(part.vector_flops)
    m, k, columns = sizes.tokens, sizes.hidden, sizes.columns
    yield placed(
        "GEMM", f"{m:,} × {k:,} × {columns:,}", roof.gemm_intensity(m, columns, k, s, a), peak
    )
    if sizes.expert is not None:
        rows, width = sizes.expert
        intensity = roof.gemm_intensity(rows, width, k, s, a)
        yield placed("expert GEMM", f"{rows:,} × {k:,} × {width:,}, each expert", intensity, peak)
    if part.shared_memory_bytes is not None:
        sram = float(part.shared_memory_bytes) / a
        yield placed(
            "flash attention",
            f"{n:,} tokens, heads of {d}, {part.shared_memory_bytes / 1024:,.0f} KiB of SRAM",
            roof.flash_attention_intensity(n, d, sram, a),
            sixteen,
        )
    yield placed(
        "naive attention", f"{n:,} tokens, heads of {d}", roof.naive_attention_intensity(n, d, a),
        sixteen,
    )  # fmt: skip
    yield placed(
        f"decode, batch {DECODED_BATCH}",
        f"{k:,} × {columns:,} weights",
        roof.gemv_intensity(columns, k, s, DECODED_BATCH),
        peak,
    )
    yield placed(
        "KV-cache attention",
        f"{n:,} tokens, {sizes.group} query heads per key head",
        roof.decode_attention_intensity(n, d, a, sizes.group),
        sixteen,
    )
    yield placed(
        "decode, batch 1", f"{k:,} × {columns:,} weights", roof.gemv_intensity(columns, k, s), peak
    )
    for name, flops, reads in (
        ("softmax", roof.SOFTMAX_FLOPS, 1),
        ("norm", roof.NORM_FLOPS, 1),
        ("residual add", roof.ELEMENTWISE_FLOPS, 2),
    ):
        yield placed(name, "", roof.streaming_intensity(flops, a, reads), vector, "vector")


def _sixteen(part: Accelerator) -> float:
    """The 16-bit peak, or the first there is."""
    peaks = part.peak_flops
    return float(peaks.get("bf16") or peaks.get("fp16") or next(iter(peaks.values())))


def _moves(part: Accelerator, precision: Precision, sizes: Sizes) -> Iterator[Move]:
    """The ways the same work gets to a better place: precision, fusion, tiles, batch, heads."""
    beta, a, s = float(part.hbm_bytes_per_second), ACTIVATION_BYTES, ELEMENT_BYTES[precision]
    m, k, columns = sizes.tokens, sizes.hidden, sizes.columns
    n, d = sizes.sequence_length, sizes.head_dim
    sixteen, vector = _sixteen(part), float(part.vector_flops)
    peak = float(part.peak_flops[precision])

    def move(name: str, before: float, after: float, first: float, second: float) -> Move:
        return Move(
            name,
            float(before),
            float(after),
            float(roof.attainable(before, first, beta)),
            float(roof.attainable(after, second, beta)),
        )

    lower: tuple[Precision, ...] = ("fp8", "fp4")
    for other in lower:
        if other not in part.peak_flops or ELEMENT_BYTES[other] >= s:
            continue
        names, to = f"{precision.upper()} → {other.upper()}", float(part.peak_flops[other])
        b = ELEMENT_BYTES[other]
        yield move(
            f"decode, batch 1: {names}",
            roof.gemv_intensity(columns, k, s), roof.gemv_intensity(columns, k, b), peak, to,
        )  # fmt: skip
        yield move(
            f"GEMM: {names}",
            roof.gemm_intensity(m, columns, k, s, a), roof.gemm_intensity(m, columns, k, b, a),
            peak, to,
        )  # fmt: skip
    flops = (roof.ELEMENTWISE_FLOPS, roof.NORM_FLOPS, roof.ELEMENTWISE_FLOPS)
    moved = (3 * a, 2 * a, 2 * a)  # residual add reads two tensors
    yield move(
        "add, norm, scale: three kernels → one",
        roof.chain_intensity(flops, moved), roof.chain_intensity(flops, moved, (a, a)),
        vector, vector,
    )  # fmt: skip
    if part.shared_memory_bytes is not None:
        sram = float(part.shared_memory_bytes) / a
        yield move(
            "attention: naive → flash",
            roof.naive_attention_intensity(n, d, a),
            roof.flash_attention_intensity(n, d, sram, a),
            sixteen, sixteen,
        )  # fmt: skip
    yield move(
        f"decode: batch 1 → {DECODED_BATCH}",
        roof.gemv_intensity(columns, k, s), roof.gemv_intensity(columns, k, s, DECODED_BATCH),
        peak, peak,
    )  # fmt: skip
    if sizes.group > 1:
        yield move(
            f"KV-cache attention: a key head for 1 → {sizes.group} query heads",
            roof.decode_attention_intensity(n, d, a),
            roof.decode_attention_intensity(n, d, a, sizes.group),
            sixteen, sixteen,
        )  # fmt: skip


def _point(name: str, group: GroupReport, peak_flops: float) -> GroupPoint:
    """A group on the tier whose links it keeps busy longest."""
    tier, cost = max(group.tiers.items(), key=lambda item: item[1]["busy_seconds"])
    exposed = group.exposed_intensity
    walls: dict[Wall, float] = {
        "compute": group.flops / peak_flops,
        "bandwidth": cost["busy_seconds"],
        "latency": group.latency_seconds,
    }
    return GroupPoint(
        name=name,
        members=group.members,
        tier=tier,
        bytes=cost["bytes"],
        flops=group.flops,
        intensity=group.flops / cost["bytes"],
        exposed_intensity=None if exposed is None else exposed * group.bytes / cost["bytes"],
        ridge=cost["ridge"],
        compute_seconds=walls["compute"],
        bandwidth_seconds=walls["bandwidth"],
        latency_seconds=walls["latency"],
        wall=max(walls, key=lambda wall: walls[wall]),
    )
