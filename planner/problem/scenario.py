"""The scenario: everything a plan is made from, and its document form."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from annotated_types import Ge, Lt, MinLen
from pydantic import Field, model_validator
from pydantic_core import core_schema

from planner.errors import InputError
from planner.files import Reference, Strict, from_document, load
from planner.problem.frozen import FROZEN
from planner.problem.model import Model
from planner.problem.quantities import Accelerators, Count, Quantity
from planner.problem.software import (
    ContextParallelKind,
    Dispatcher,
    Offload,
    Recompute,
    Schedule,
    Software,
    ZeroStage,
)
from planner.problem.topology import Topology
from planner.problem.training import Training

DEFAULT_SOFTWARE = "megatron-core"

_Item = TypeVar("_Item")


class _OneOrMore:
    """A list of choices, or one choice for a list of itself; the JSON Schema says both."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        def listed(value: object) -> object:
            return value if isinstance(value, tuple) or value is None else (value,)

        return core_schema.no_info_before_validator_function(listed, handler(source))

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        found: dict[str, Any] = handler(schema)
        return {"anyOf": [*found["anyOf"], found["anyOf"][0]["items"]]}


Choices = Annotated[Annotated[tuple[_Item, ...], MinLen(1)] | None, _OneOrMore()]


class Search(Strict):
    """Restrictions on the choices; None leaves a choice free."""

    tp: Choices[Count] = None
    cp: Choices[Count] = None
    pp: Choices[Count] = None
    ep: Choices[Count] = None
    etp: Choices[Count] = None
    edp: Choices[Count] = None
    dp: Choices[Count] = None
    dp_shard: Choices[Count] = None
    dp_replicate: Choices[Count] = None
    vp: Choices[Count] = None
    mbs: Choices[Count] = None
    num_microbatches: Choices[Count] = None
    zero_stage: Choices[ZeroStage] = None
    recompute: Choices[Recompute] = None
    sp: Choices[bool] = None
    schedule: Choices[Schedule] = None
    cp_kind: Choices[ContextParallelKind] = None
    cp_a2a: Choices[Count] = None
    dispatcher: Choices[Dispatcher] = None
    # Free means none here: what to offload is not searched unless named.
    offload: Choices[Offload] = None
    memory: Literal["fits", "fragile"] = "fits"
    tie_fraction: Annotated[float, Ge(0), Lt(1)] = 0.005
    orders: Literal["any", "framework"] = "any"
    # Choose by the upper ends of the error bars of step time and peak memory.
    robust: bool = False


class Scenario(Strict):
    """A job on a cluster; references are inlined, so a scenario is complete by itself."""

    not_planned = FROZEN

    model: Annotated[Model, Reference("model")]
    topology: Annotated[Topology, Reference("topology")]
    num_accelerators: Accelerators
    training: Training
    software: Annotated[Software, Reference("software")] = Field(
        default_factory=lambda: load(DEFAULT_SOFTWARE, "software", Software)
    )
    search: Search = Search()
    price_per_accelerator_hour: Annotated[float, Quantity("USD/hour", at_least=0)] | None = None

    @model_validator(mode="after")
    def _accelerators_exist(self) -> "Scenario":
        most = self.topology.num_accelerators
        if self.num_accelerators > most:
            raise InputError(
                f"{self.num_accelerators} accelerators are more than the {most} of topology "
                f"{self.topology.name}",
                key="num_accelerators",
                value=self.num_accelerators,
                allowed=f"an integer from 1 to {most}",
                nearest=str(most),
            )
        return self

    @model_validator(mode="after")
    def _positions_exist(self) -> "Scenario":
        positions, sequence = self.model.num_position_embeddings, self.training.sequence_length
        if 0 < positions < sequence:
            raise InputError(
                f"model {self.model.name} has {positions} learned positions, fewer than "
                f"{sequence} tokens",
                key="training.sequence_length",
                value=sequence,
                allowed=f"an integer from 1 to {positions}",
                nearest=str(positions),
            )
        return self

    @model_validator(mode="after")
    def _precision_exists(self) -> "Scenario":
        accelerator, training = self.topology.accelerator, self.training
        able = [name for name in accelerator.peak_flops if name in accelerator.gemm]
        if training.peak_key not in able:
            raise InputError(
                f"{training.precision} needs {training.peak_key} matmuls, which accelerator "
                f"{accelerator.name} has no figures for",
                key="training.precision",
                value=training.precision,
                allowed=f"a precision whose matmuls are among {', '.join(able)}",
            )
        return self


def load_scenario(name_or_path: str | Path, overrides: Mapping[str, str] | None = None) -> Scenario:
    """Return a scenario by name or path; `overrides` are dotted keys to YAML text."""
    return load(name_or_path, "scenario", Scenario, overrides)


def scenario_to_document(scenario: Scenario) -> dict[str, Any]:
    """Return the scenario as a mapping for JSON, every reference inlined."""
    return scenario.model_dump(mode="json", by_alias=True)


def scenario_from_document(document: object, path: str = "scenario") -> Scenario:
    """Return the scenario of such a mapping; `path` names its origin in errors."""
    return from_document(document, path, Scenario)


def inputs_sha256(document: object) -> str:
    """Return the SHA-256 of a document in canonical JSON: sorted keys, no blanks."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
