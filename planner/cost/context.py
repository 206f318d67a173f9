"""A scenario as the plain numbers that cost formulas read.

`CostContext.of(scenario)` is the one door from problem values to costs: floats, ints and small
arrays over tiers, resolved once (the attention backend, the peak of the declared precision).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from planner.cost.collectives import POSTING_SHARE
from planner.cost.layers import LayerKind, key_value_sizes, layer_kinds
from planner.errors import InputError
from planner.layouts.numeric import Numeric
from planner.problem.cluster import Cluster
from planner.problem.hardware import (
    Accelerator,
    AttentionBackend,
    AttentionCoefficients,
    GemmCoefficients,
)
from planner.problem.model import Model
from planner.problem.overheads import End
from planner.problem.precision import ELEMENT_BYTES, Precision
from planner.problem.scenario import Scenario
from planner.problem.software import Software
from planner.problem.topology import Tier, Topology
from planner.problem.training import Training

Array = NDArray[np.float64]
Entry = TypeVar("Entry")

SCORE_WRITING_BACKENDS = ("fused-softmax", "naive")
"""Attention backends that write the N×N scores to memory."""


@dataclass(frozen=True, slots=True)
class TierArrays:
    """Rates and latencies of the tiers, inner to outer: arrays of length T.

    Rates are bytes per second, per accelerator and direction, that large messages of a collective
    achieve. None stands for what no tier has.
    """

    bytes_per_second: Array  # after oversubscription, before efficiency
    all_gather: Array  # ring all-gather and reduce-scatter
    all_reduce: Array
    all_to_all: Array
    point_to_point: Array
    hop_seconds: Array
    base_seconds: Array
    posting_seconds: Array  # of a send of an all-to-all to one peer that the tier joins
    dispatch: Array | None = None  # of the flex dispatcher's kernels, where not as all_to_all
    short_send: Array | None = None  # as point_to_point, of short messages on the innermost tier
    mesh_members: tuple[float | None, ...] | None = None  # of full meshes
    own_share: float | None = None  # see `collectives.own_share_busy`, of the innermost tier
    rendezvous_seconds: Array | None = None  # of a hop, for messages above the eager limit
    eager_bytes: float = np.inf  # the lowest limit of the tiers with a rendezvous
    sharp: Array | None = None  # as all_reduce, where the network's switches reduce, else 0
    sharp_seconds: Array | None = None  # one pass through those switches

    @classmethod
    def of(cls, topology: Topology) -> TierArrays:
        """The tiers of a topology."""
        return cls.of_tiers(topology.tiers)

    @classmethod
    def of_tiers(cls, tiers: Sequence[Tier]) -> TierArrays:
        """Tiers, inner to outer."""
        line = np.array([tier.bytes_per_second for tier in tiers], dtype=float)

        def column(name: str) -> Array:
            return np.array([getattr(tier.fabric, name) for tier in tiers], dtype=float)

        def optional_column(name: str) -> Array:
            values = [getattr(tier.fabric, name) for tier in tiers]
            return np.array([0.0 if value is None else value for value in values], dtype=float)

        eager = [float(limit) for tier in tiers if (limit := tier.fabric.eager_bytes) is not None]
        sharp_efficiency = optional_column("sharp_efficiency")
        reduces = bool(sharp_efficiency.any())
        own_share = tiers[0].fabric.own_part
        return cls(
            bytes_per_second=line,
            all_gather=line * column("efficiency"),
            all_reduce=line * column("all_reduce_efficiency"),
            all_to_all=line * column("all_to_all_efficiency"),
            point_to_point=line * column("p2p_efficiency"),
            hop_seconds=column("hop_seconds"),
            base_seconds=column("base_seconds"),
            posting_seconds=_posting_seconds(tiers),
            dispatch=_dispatch(tiers, line),
            short_send=_short_send(tiers, line * column("p2p_efficiency")),
            mesh_members=_mesh_members(tiers),
            own_share=None if own_share is None else float(own_share),
            rendezvous_seconds=optional_column("rendezvous_seconds") if eager else None,
            eager_bytes=min(eager, default=np.inf),
            sharp=line * sharp_efficiency if reduces else None,
            sharp_seconds=optional_column("sharp_seconds") if reduces else None,
        )


def _posting_seconds(tiers: Sequence[Tier]) -> Array:
    """Of each tier: its fabric's figure, or a share of its base latency."""
    fabrics = [tier.fabric for tier in tiers]
    return np.array(
        [
            POSTING_SHARE * float(fabric.base_seconds)
            if fabric.posting_seconds is None
            else float(fabric.posting_seconds)
            for fabric in fabrics
        ],
        dtype=float,
    )


def _dispatch(tiers: Sequence[Tier], line: Array) -> Array | None:
    """Rates of the flex dispatcher; None where no fabric has a figure."""
    shares = [tier.fabric.dispatch_efficiency for tier in tiers]
    if all(share is None for share in shares):
        return None
    usual = [tier.fabric.all_to_all_efficiency for tier in tiers]
    reached = zip(shares, usual, strict=True)
    rates: Array = line * np.array([float(a if own is None else own) for own, a in reached])
    return rates


def _short_send(tiers: Sequence[Tier], point_to_point: Array) -> Array | None:
    rate = tiers[0].fabric.short_send_bytes_per_second
    if rate is None:
        return None
    return np.minimum(point_to_point, [float(rate), *(np.inf for _ in tiers[1:])])


def _mesh_members(tiers: Sequence[Tier]) -> tuple[float | None, ...] | None:
    members = [tier.fabric.mesh_members for tier in tiers]
    if all(count is None for count in members):
        return None
    return tuple(None if count is None else float(count) for count in members)


@dataclass(frozen=True, slots=True)
class AttentionSpan:
    """Attention over spans of one length, as its kernels compute it.

    share: of the causal half of a sequence's scores, mean over layers, what the kernels compute in
    such spans; tokens: the keys that a span holds.
    """

    share: float
    tokens: float


@dataclass(frozen=True, slots=True)
class CostContext:
    """Everything about a scenario that costs depend on, except the layout."""

    model: Model
    training: Training
    software: Software
    accelerator: Accelerator
    topology: Topology
    tiers: TierArrays
    num_accelerators: int
    attention_backend: AttentionBackend
    attention: AttentionCoefficients
    gemm: GemmCoefficients  # main matmuls, in the declared precision
    gemm_16: GemmCoefficients  # matmuls that stay in 16 bits: LM head
    peak_flops: float  # dense peak of the main matmul type
    peak_16_flops: float
    sustained_flops: float  # what clocks under load leave of the peaks
    sustained_16_flops: float
    hbm_bytes_per_second: float  # achieved on streaming kernels
    element_bytes: float  # of activations and parameters
    matmul_bytes: float  # of a main matmul's inputs
    layer_kinds: tuple[LayerKind, ...]
    attended_share: float  # of the causal half that queries see, mean over layers
    attention_spans: tuple[AttentionSpan, ...]  # what attention kernels compute
    ramp: tuple[float, ...]  # per tier, of collectives between start-up and full rate
    cluster: Cluster | None = None  # the usable nodes; None: the whole topology

    @property
    def reserved(self) -> tuple[int, int]:
        """What the first and last stage hold besides layers, in layers (`cost.stage_split`)."""
        return self.software.reserved_layers(self.model)

    @property
    def limit_bytes(self) -> dict[Literal["fits", "fragile"], float]:
        """Verdict → the bytes up to which a peak has it or a better one (`cost.memory`)."""
        capacity = float(self.accelerator.hbm_bytes)
        return {
            "fits": capacity * (1.0 - float(self.software.fragile_fraction)),
            "fragile": capacity,
        }

    @property
    def query_size(self) -> int:
        """Elements of all queries per token."""
        return self.model.num_attention_heads * self.model.qk_head_dim

    @property
    def output_size(self) -> int:
        """Elements of attention's output per token, all heads."""
        return self.model.num_attention_heads * self.model.v_head_dim

    def keys_values_size(self, tp: Numeric) -> Numeric:
        """Elements of keys and values per token over all tp ranks; heads replicate beyond kv."""
        return key_value_sizes(self.model, tp).total

    @property
    def low_precision(self) -> bool:
        """Whether the main matmuls run in fewer than 16 bits."""
        return self.matmul_bytes < self.element_bytes

    def at_cluster_end(self, end: End) -> CostContext:
        """The same job on a cluster whose overheads are at an end of their range."""
        overheads = self.topology.overheads.at_end(end)
        topology = self.topology.model_copy(update={"overheads": overheads})
        return replace(self, topology=topology)

    @classmethod
    def of(cls, scenario: Scenario) -> CostContext:
        """The numbers of a scenario.

        Raises:
            InputError: the accelerator lacks the precision or the attention backend asked for.
        """
        model, training = scenario.model, scenario.training
        accelerator = scenario.topology.accelerator
        backend = attention_of(scenario)
        sixteen: Precision = "fp16" if training.peak_key == "fp16" else "bf16"
        if sixteen not in accelerator.peak_flops:
            sixteen = "fp16"
        peak = _of_precision(accelerator, training, accelerator.peak_flops)
        clock = _of_precision(accelerator, training, accelerator.sustained_fraction)
        return cls(
            model=model,
            training=training,
            software=scenario.software,
            accelerator=accelerator,
            topology=scenario.topology,
            tiers=TierArrays.of(scenario.topology),
            num_accelerators=scenario.num_accelerators,
            attention_backend=backend,
            attention=accelerator.attention[backend],
            gemm=_of_precision(accelerator, training, accelerator.gemm),
            gemm_16=accelerator.gemm[sixteen],
            peak_flops=float(peak),
            peak_16_flops=float(accelerator.peak_flops[sixteen]),
            sustained_flops=float(peak * clock),
            sustained_16_flops=float(accelerator.peak_flops[sixteen] * clock),
            hbm_bytes_per_second=float(
                accelerator.hbm_bytes_per_second * accelerator.hbm_efficiency
            ),
            element_bytes=2.0,
            matmul_bytes=ELEMENT_BYTES[training.peak_key],
            layer_kinds=layer_kinds(model),
            attended_share=attended_share(
                model, training.sequence_length, training.document_length
            ),
            attention_spans=attention_spans(
                model, training.sequence_length, training.document_length
            ),
            ramp=tuple(float(tier.fabric.ramp) for tier in scenario.topology.tiers),
            cluster=None
            if scenario.inventory is None
            else Cluster.of(scenario.inventory, scenario.topology),
        )


def attended_share(model: Model, sequence_length: int, document_length: int) -> float:
    """Share of the causal half of a sequence's scores that is computed, mean over layers with any.

    A sequence of s tokens holds as many documents of d as fit and the beginning of one more; a
    query sees its own document (block-diagonal causal mask: Krell et al. 2021, arXiv 2107.02027),
    so d²/2 scores of each are left of s²/2.
    """
    windowed = _windowed_share(model)
    return sum(
        piece * ((1.0 - windowed) + windowed * _under_window(model.sliding_window, length))
        for piece, length in _documents(sequence_length, document_length)
    )


WINDOW_TILE = 128
"""Queries, and keys, of a tile of attention kernels: FlashAttention-2 (arXiv 2307.08691, section
3.3) computes whole tiles, and masks what a window leaves out at their edges."""


def attention_spans(
    model: Model, sequence_length: int, document_length: int
) -> tuple[AttentionSpan, ...]:
    """What attention kernels compute: whole documents, and bands under windows.

    A band under a window of w tokens is w and a tile wide, and as short as that for the kernel.
    """
    windowed, window = _windowed_share(model), model.sliding_window or 0
    documents = _documents(sequence_length, document_length)
    whole = (1.0 - windowed) * sum(piece for piece, _ in documents)
    spans = [AttentionSpan(whole, float(document_length))] if whole else []
    if windowed:
        width = min(window + WINDOW_TILE, document_length)
        band = windowed * sum(piece * _under_window(width, length) for piece, length in documents)
        spans.append(AttentionSpan(band, float(width)))
    return tuple(spans)


def _windowed_share(model: Model) -> float:
    """Of the layers that attend, the share with a window."""
    layers = model.num_attention_layers
    if model.sliding_window is None or not layers:
        return 0.0
    windowed = layers if model.num_windowed_layers is None else model.num_windowed_layers
    return windowed / layers


def _documents(sequence_length: int, document_length: int) -> list[tuple[float, int]]:
    """The documents of a sequence of one length: their share of its causal half, and the length."""
    complete, rest = divmod(sequence_length, document_length)
    return [
        (number * (length / sequence_length) ** 2, length)
        for number, length in ((complete, document_length), (1, rest))
        if number and length
    ]


def _under_window(window: int | None, length: int) -> float:
    """Share of the causal half of `length` tokens' scores that a window leaves.

    A query sees the last w tokens: s·w − w²/2 of s²/2 scores.
    """
    width = min(window or length, length) / length
    return 2.0 * width - width**2


def attention_of(scenario: Scenario) -> AttentionBackend:
    """The attention backend of a scenario: the one it names, or what its software runs by default.

    Raises:
        InputError: the accelerator has no figures for the backend named.
    """
    wanted, usual = scenario.training.attention, scenario.software.attention
    accelerator = scenario.topology.accelerator
    known = accelerator.attention
    if wanted == "auto":
        return fastest_attention(accelerator, () if usual is None else usual.kernels)
    if wanted not in known:
        raise InputError(
            f"accelerator {accelerator.name} has no attention backend {wanted!r}",
            key="training.attention",
            value=wanted,
            allowed=", ".join(["auto", *sorted(known)]),
        )
    return wanted


def fastest_attention(
    accelerator: Accelerator, among: Collection[AttentionBackend] = ()
) -> AttentionBackend:
    """The accelerator's fastest attention backend of those given, or of all if it has none of them.

    Backends that write the scores count as slower than those that do not.
    """
    known = accelerator.attention
    candidates = [name for name in known if name in among] or list(known)
    return max(
        candidates,
        key=lambda name: (name not in SCORE_WRITING_BACKENDS, float(known[name].forward)),
    )


def _of_precision(
    accelerator: Accelerator, training: Training, table: Mapping[Precision, Entry]
) -> Entry:
    """The entry of a table of the accelerator for the precision of the main matmuls."""
    if training.peak_key not in table:
        raise InputError(
            f"accelerator {accelerator.name} has no {training.peak_key} matmuls",
            key="training.precision",
            value=training.precision,
            allowed=", ".join(sorted(accelerator.peak_flops)),
        )
    return table[training.peak_key]
