"""What a job loses to the cluster it runs on, whatever its software: waits among its ranks.

    topology.overheads.straggler_fraction_per_doubling

These numbers differ from cluster to cluster and are on no data sheet. `usual` ships; a topology may
give its own, which `planner calibrate runs` can fit to measured runs of it.
"""

from __future__ import annotations

from functools import cache
from typing import Literal

from pydantic import Field, model_validator

from planner.errors import InputError
from planner.inputs.quantities import Figure, Fraction, Seconds
from planner.inputs.values import Strict, load

End = Literal["low", "high"]

ENDS: tuple[End, ...] = ("low", "high")
"""Of the range that clusters lie in."""

USUAL = "usual"
"""Name of the shipped overheads of a cluster of which nothing is known."""


class Overheads(Strict):
    """Waits among the ranks of a cluster, with the range that clusters of its sort show.

    collective_seconds: what each collective of tensor parallelism takes beyond its fabric's model,
    per doubling of its ranks: they do not arrive at the same time. straggler_fraction_per_doubling:
    of the step, per doubling of the job's ranks, the slowest of which all others wait for.
    The ends of a range hold 80 % of clusters; absent: the number is of this cluster and exact.
    """

    name: str
    description: str
    collective_seconds: Seconds = Field(alias="collective_latency")
    collective_seconds_low: Seconds | None = Field(alias="collective_latency_low", default=None)
    collective_seconds_high: Seconds | None = Field(alias="collective_latency_high", default=None)
    straggler_fraction_per_doubling: Fraction
    straggler_fraction_per_doubling_low: Fraction | None = None
    straggler_fraction_per_doubling_high: Fraction | None = None

    @model_validator(mode="after")
    def _ranges_hold_their_number(self) -> Overheads:
        for name in NUMBERS:
            usual = getattr(self, name)
            low, high = self._end(name, "low"), self._end(name, "high")
            if not low <= usual <= high:
                raise InputError(
                    f"{float(usual):g} lies outside its range of {float(low):g} to {float(high):g}",
                    key=type(self).model_fields[name].alias or name,
                    allowed="a low end, a number and a high end, in this order; change the ends "
                    "with it",
                )
        return self

    def _end(self, name: str, end: str) -> Figure:
        value: Figure | None = getattr(self, f"{name}_{end}")
        usual: Figure = getattr(self, name)
        return usual if value is None else value

    def at_end(self, end: End) -> Overheads:
        """The overheads with every number at an end, `low` or `high`, of its range."""
        return self.replace(**{name: self._end(name, end) for name in NUMBERS})


NUMBERS = ("collective_seconds", "straggler_fraction_per_doubling")


@cache
def usual_overheads() -> Overheads:
    """The shipped overheads of a cluster of which nothing is known."""
    return load(USUAL, "overheads", Overheads)
