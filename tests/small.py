"""Small scenarios built in code: toy accelerators, synthetic tiers, models of a few layers.

Numbers are made up; tests read results off the program or count by hand, never off these figures.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import cache
from math import prod
from typing import Any

from planner.cost.context import CostContext
from planner.cost.memory import VERDICTS, verdict_index
from planner.cost.step import evaluate
from planner.files import load
from planner.layout import ATOMS, GROUPS, Layout
from planner.problem.hardware import Accelerator, AttentionCoefficients, GemmCoefficients
from planner.problem.model import Model
from planner.problem.quantities import Figure
from planner.problem.scenario import Scenario, Search
from planner.problem.software import Software, SoftwareCoefficients
from planner.problem.topology import Fabric, Tier, Topology
from planner.problem.training import Training

Placement = tuple[tuple[int, ...], ...]
"""Factors of every atom in every tier, ATOMS × tiers."""


def figure(value: float) -> Figure:
    """A made-up figure in SI units."""
    return Figure(value, "made up for a test", "assumed")


def accelerator(**changes: Any) -> Accelerator:
    """A toy part of 100 TFLOP/s with 32 GB of memory."""
    gemm = GemmCoefficients(
        efficiency=figure(0.8), k_half=figure(64), tile_m=figure(64), tile_n=figure(64),
        overhead_seconds=figure(2e-6),
    )  # fmt: skip
    attention = AttentionCoefficients(
        forward=figure(0.6), backward=figure(0.5), sequence_half=figure(256)
    )
    values: dict[str, Any] = {
        "name": "toy-part",
        "peak_flops": {"bf16": figure(100e12)},
        "vector_flops": figure(10e12),
        "hbm_bytes_per_second": figure(2e12),
        "hbm_bytes": figure(32e9),
        "num_multiprocessors": figure(100),
        "l2_bytes": figure(40e6),
        "hbm_efficiency": figure(0.9),
        "sustained_fraction": figure(0.95),
        "gemm": {"bf16": gemm},
        "attention": {"flash": attention},
    }
    return Accelerator(**(values | changes))


def tier(
    number: int,
    width: int,
    bytes_per_second: float,
    hop_seconds: float = 2e-6,
    base_seconds: float = 8e-6,
    ramp: float = 0.3,
) -> Tier:
    """Tier `number`, counted from the inside."""
    fabric = Fabric(
        name=f"link-{number}",
        kind="network" if number else "scale-up",
        bytes_per_second=figure(bytes_per_second),
        base_seconds=figure(base_seconds),
        hop_seconds=figure(hop_seconds),
        ramp=figure(ramp),
        efficiency=figure(0.8),
        all_reduce_efficiency=figure(0.8 if number else 1.0),
        all_to_all_efficiency=figure(0.7),
        p2p_efficiency=figure(0.75),
    )
    return Tier(name=f"tier{number}", width=width, fabric=fabric)


def topology(
    widths: Sequence[int] = (4, 4),
    bytes_per_second: Sequence[float] | None = None,
    part: Accelerator | None = None,
) -> Topology:
    """Tiers of these widths; bandwidth falls fivefold from one to the next unless given."""
    rates = bytes_per_second or [200e9 / 5**number for number in range(len(widths))]
    return Topology(
        name="toy-cluster",
        description="for tests",
        source="made up",
        accelerator=part or accelerator(),
        tiers=tuple(tier(i, w, rates[i]) for i, w in enumerate(widths)),
    )


def model(**changes: Any) -> Model:
    """A model of four layers and eight heads."""
    values: dict[str, Any] = {
        "name": "toy-model",
        "source": "made up",
        "num_layers": 4,
        "hidden_size": 1024,
        "ffn_hidden_size": 4096,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "vocab_size": 32000,
        "gated_mlp": True,
        "tied_embeddings": False,
        "norm": "rmsnorm",
    }
    return Model(**(values | changes))


def coefficients(**changes: float) -> SoftwareCoefficients:
    """Overlaps and overheads of a toy framework."""
    values = {
        "tp_overlap_fraction": 0.3,
        "dp_overlap_fraction": 0.5,
        "pp_overlap_fraction": 0.4,
        "memory_bound_multiplier": 1.1,
        "host_seconds_per_kernel": 2e-6,
        "straggler_fraction_per_doubling": 0.004,
        "step_overhead_seconds": 1e-3,
        "allocator_fraction": 0.05,
    }
    return SoftwareCoefficients(**{k: figure(v) for k, v in (values | changes).items()})


def software(**changes: Any) -> Software:
    """A framework that allows nearly everything, overlaps on."""
    values: dict[str, Any] = {
        "name": "toy-software",
        "description": "for tests",
        "rules": (),
        "orders": {"tp-cp-dp-pp": ("tp", "cp", "dp", "pp")},
        "schedules": ("1f1b", "interleaved"),
        "zero_stages": (0, 1, 2, 3),
        "shard_groups": "any",
        "recompute": ("none",),
        "sequence_parallel": "optional",
        "overlap": ("tp", "dp", "pp"),
        "cp_kind": "ring",
        "gradient_bytes": figure(4),
        "logits_bytes": figure(10),
        "runtime_bytes": figure(1e9),
        "communicator_bytes": figure(1e8),
        "fragile_fraction": figure(0.08),
        "coefficients": coefficients(),
    }
    return Software(**(values | changes))


def training(**changes: Any) -> Training:
    """A job of short sequences."""
    values: dict[str, Any] = {
        "sequence_length": 2048,
        "global_batch_size": 16,
        "precision": "bf16",
        "optimizer": "adam",
    }
    return Training(**(values | changes))


def scenario(num_accelerators: int = 16, **changes: Any) -> Scenario:
    """The toy model on the toy cluster."""
    values: dict[str, Any] = {
        "model": model(),
        "topology": topology(),
        "training": training(),
        "software": software(),
        "search": Search(),
    }
    return Scenario(num_accelerators=num_accelerators, **(values | changes))


@cache
def shipped_software(name: str) -> Software:
    """A shipped software profile."""
    return load(name, "software", Software)


# --- plain enumeration: itertools and scalars, nothing of `planner.search` ------------------------


def divisors(number: int) -> list[int]:
    """Divisors, rising."""
    return [d for d in range(1, number + 1) if number % d == 0]


@cache
def factorisations(number: int, parts: int) -> tuple[tuple[int, ...], ...]:
    """Every way to write a number as an ordered product."""
    found = itertools.product(divisors(number), repeat=parts)
    return tuple(factors for factors in found if prod(factors) == number)


@cache
def all_placements(degrees: tuple[int, ...], widths: tuple[int, ...]) -> tuple[Placement, ...]:
    """Every placement over every fill, atom after atom."""
    room: list[tuple[Placement, tuple[int, ...]]] = [((), (1,) * len(widths))]
    for degree in degrees:
        grown = []
        for (rows, used), factors in itertools.product(room, factorisations(degree, len(widths))):
            filled = tuple(u * f for u, f in zip(used, factors, strict=True))
            if all(f <= w for f, w in zip(filled, widths, strict=True)):
                grown.append(((*rows, factors), filled))
        room = grown
    return tuple(rows for rows, _ in room)


def plain_splits(placement: Placement) -> dict[str, list[int]]:
    """Members of every group in every tier."""
    return {
        group: [prod(placement[ATOMS.index(a)][t] for a in atoms) for t in range(len(placement[0]))]
        for group, atoms in GROUPS.items()
    }


def plain_step(ctx: CostContext, layout: Layout, placement: Placement) -> float:
    """The scalar step of one row."""
    return float(evaluate(ctx, layout, plain_splits(placement)).total)


def verdict(ctx: CostContext, peak_bytes: float) -> str:
    """The verdict on a peak."""
    return VERDICTS[int(verdict_index(ctx, peak_bytes))]


def rank_coordinates(order: list[tuple[str, int]]) -> list[dict[str, int]]:
    """Every rank's coordinates: mixed radix along the order, innermost first."""
    ranks = []
    for rank in range(prod(factor for _, factor in order)):
        rest, coordinates, stride = rank, dict.fromkeys(ATOMS, 0), dict.fromkeys(ATOMS, 1)
        for atom, factor in order:
            rest, digit = divmod(rest, factor)
            coordinates[atom] += digit * stride[atom]
            stride[atom] *= factor
        ranks.append(coordinates)
    return ranks


def rank_factors(order: list[tuple[str, int]], fill: Sequence[int]) -> dict[str, list[int]]:
    """How many members of each atom's group share a domain of every tier, off the rank table."""
    ranks = rank_coordinates(order)
    found: dict[str, list[int]] = {atom: [] for atom in ATOMS}
    for atom in ATOMS:
        own = [{**c, atom: 0} == dict.fromkeys(ATOMS, 0) for c in ranks]
        group = [rank for rank, inside in enumerate(own) if inside]
        reached = len(group)
        size = 1
        for children in fill:
            size *= children
            domains = len({rank // size for rank in group})
            found[atom].append(reached // domains)
            reached = domains
    return found
