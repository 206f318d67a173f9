"""Topologies: tiers of bandwidth from the innermost domain outwards, over one accelerator."""

from math import prod
from typing import Annotated, Literal

from pydantic import Field, model_validator

from planner.errors import InputError
from planner.inputs.quantities import (
    Bytes,
    BytesPerSecond,
    Count,
    Efficiency,
    Figure,
    NotNegative,
    Seconds,
    Sourced,
)
from planner.inputs.values import Reference, Strict
from planner.problem.fills import Fill, fills
from planner.problem.hardware import Accelerator
from planner.problem.overheads import USUAL, Overheads, usual_overheads

RESERVED_TIER = "hbm"
"""The accelerator's memory, which reports list together with the tiers."""


class Fabric(Strict):
    """The links of a tier: rate per accelerator and direction, latencies, achieved shares.

    `bandwidth` is the data sheet's; efficiencies are the shares of it that long messages reach.
    `base_latency` is the start-up time of a collective, `hop_latency` that of each of its steps.
    """

    name: str
    kind: Literal["scale-up", "network"]
    bytes_per_second: BytesPerSecond = Field(alias="bandwidth")
    base_seconds: Seconds = Field(alias="base_latency")
    hop_seconds: Seconds = Field(alias="hop_latency")
    # Short messages start after L, long ones, which use slower protocols, W later; between them
    # T = L + B + min(W, 2·ramp·√(W·B)), where B is the time of the bytes and W follows from L.
    ramp: NotNegative
    efficiency: Efficiency
    # In-switch reduction moves fewer bytes than the ring that bus bandwidth counts: above 1.
    all_reduce_efficiency: Annotated[Figure, Sourced(above=0, at_most=2)]
    all_to_all_efficiency: Efficiency
    p2p_efficiency: Efficiency
    # Of sends of up to 64 MiB, which use few of the links at once; absent: no difference.
    short_send_bytes_per_second: BytesPerSecond | None = Field(
        alias="short_send_bandwidth", default=None
    )
    # Accelerators that a full mesh links pairwise: fewer of them share fewer links.
    mesh_members: Annotated[Figure, Sourced(at_least=2)] | None = None
    # What each hop takes longer for messages above the eager limit, as the two ends agree first.
    rendezvous_seconds: Seconds | None = Field(alias="rendezvous_latency", default=None)
    eager_bytes: Bytes | None = Field(alias="eager_limit", default=None)
    # Of each send of an all-to-all, to a peer across this tier; absent: a quarter of base_latency.
    posting_seconds: Seconds | None = Field(alias="posting_latency", default=None)
    # Switches that reduce all-reduces (SHARP): share of the bandwidth at which a rank's bytes go up
    # once and down once, and the time of one pass through the switches; absent: no such switches.
    sharp_efficiency: Efficiency | None = None
    sharp_seconds: Seconds | None = Field(alias="sharp_latency", default=None)
    # Whether the flex dispatcher's kernels (DeepEP, HybridEP) send over these links, and
    # the share of the bandwidth that they reach; absent: as all_to_all_efficiency.
    dispatch_kernels: bool = True
    dispatch_efficiency: Efficiency | None = None
    # A rank copies its own share of a collective too: its time over that of a share on the links.
    # Absent: it takes no time.
    own_part: Annotated[Figure, Sourced(above=0, at_most=1)] | None = None

    @model_validator(mode="after")
    def _pairs_are_complete(self) -> "Fabric":
        for pair in PAIRS:
            given = {
                type(self).model_fields[name].alias or name: getattr(self, name) is not None
                for name in pair
            }
            if len(set(given.values())) == 2:
                present, absent = sorted(given, key=given.__getitem__, reverse=True)
                raise InputError(
                    f"'{present}' is given without '{absent}'",
                    key=present,
                    allowed="both of the two, or neither",
                )
        return self


PAIRS = (("rendezvous_seconds", "eager_bytes"), ("sharp_efficiency", "sharp_seconds"))
"""Attributes of a fabric that only mean something together."""


class Tier(Strict):
    """One tier; each domain of it has `width` children: accelerators, or domains of the tier below.

    `bandwidth` overrides the fabric's; an `oversubscription` of 2 halves what the tier carries for
    each accelerator.
    """

    name: str = Field(min_length=1)
    width: Count
    fabric: Annotated[Fabric, Reference("fabric")]
    bandwidth: BytesPerSecond | None = None
    oversubscription: Annotated[Figure, Sourced(at_least=1)] | None = None

    @property
    def link_bytes_per_second(self) -> Figure:
        """Bytes per second of an accelerator's own links: the override, else the fabric's."""
        return self.fabric.bytes_per_second if self.bandwidth is None else self.bandwidth

    @property
    def bytes_per_second(self) -> float:
        """Bytes per second per accelerator and direction, after override and oversubscription.

        As on paper: efficiencies come on top.
        """
        return float(self.link_bytes_per_second) / float(self.oversubscription or 1.0)


class Topology(Strict):
    """A cluster: one accelerator type under tiers, inner to outer."""

    name: str
    description: str
    source: str
    accelerator: Annotated[Accelerator, Reference("accelerator")]
    tiers: tuple[Tier, ...] = Field(min_length=1)
    # Waits among ranks; absent: those of a cluster of which nothing is known.
    overheads: Annotated[Overheads, Reference("overheads", usual=USUAL)] = Field(
        default_factory=usual_overheads
    )

    @model_validator(mode="after")
    def _tier_names(self) -> "Topology":
        for position, name in enumerate(self.tier_names):
            if name in self.tier_names[:position]:
                reason = f"the tier name '{name}' is given twice"
            elif name == RESERVED_TIER:
                reason = f"'{name}' is the accelerator's own memory"
            else:
                continue
            raise InputError(
                reason,
                key=f"tiers.{position}.name",
                value=name,
                allowed=f"names that differ from each other and from '{RESERVED_TIER}'",
            )
        return self

    @property
    def tier_names(self) -> tuple[str, ...]:
        """Names, inner to outer."""
        return tuple(tier.name for tier in self.tiers)

    @property
    def widths(self) -> tuple[int, ...]:
        """Children per domain, inner to outer."""
        return tuple(tier.width for tier in self.tiers)

    @property
    def num_accelerators(self) -> int:
        """All accelerators of the cluster."""
        return prod(self.widths)

    def fills(self, num: int) -> list[Fill]:
        """Return the fills of so many accelerators, the innermost fullest first."""
        return fills(self.widths, num)

    def link_rate_key(self, position: int) -> str:
        """Return the dotted key of a tier's `link_bytes_per_second` in a topology's file."""
        own = self.tiers[position].bandwidth is not None
        return f"tiers.{position}.{'bandwidth' if own else 'fabric.bandwidth'}.value"

    def with_network(self, bytes_per_second: float) -> "Topology":
        """Return the topology whose network tiers have this rate per accelerator and direction."""
        rate = (
            bytes_per_second
            if isinstance(bytes_per_second, Figure)
            else Figure(bytes_per_second, "given by the caller", "assumed")
        )
        tiers = (
            tier.replace(bandwidth=rate) if tier.fabric.kind == "network" else tier
            for tier in self.tiers
        )
        return self.replace(tiers=tuple(tiers))

    def with_scale_up_width(self, width: int) -> "Topology":
        """Return the topology whose innermost domains have `width` accelerators."""
        inner, *outer = self.tiers
        return self.replace(tiers=(inner.replace(width=width), *outer))
