"""The scenario: model, topology, count of accelerators, training job, software and restrictions
together; everything a plan is made from, and its document."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from annotated_types import Ge, Le, Lt, MinLen
from pydantic import Field, create_model, model_validator
from pydantic_core import core_schema

from planner.errors import InputError
from planner.inputs.quantities import Accelerators, Count, CountOrZero, Quantity
from planner.inputs.values import Overrides, Reference, Strict, from_document, load
from planner.layouts.keys import KEYS, Form, LayoutKey
from planner.problem.cluster import Cluster
from planner.problem.inventory import Inventory
from planner.problem.model import Model
from planner.problem.precision import RECIPES, TrainingPrecision
from planner.problem.search_fields import FREE, Counts, Days, Objective, Overlaps
from planner.problem.software import Software
from planner.problem.topology import Topology
from planner.problem.training import FROZEN_PARAMETERS, Training

DEFAULT_SOFTWARE = "megatron-core"

_Item = TypeVar("_Item")


class _OneOrMore:
    """A list of choices, or one choice, which stands for a list of itself."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        def listed(value: object) -> object:
            return value if isinstance(value, tuple) or value is None else (value,)

        return core_schema.no_info_before_validator_function(listed, handler(source))

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        optional_list: dict[str, Any] = handler(schema)
        choices = optional_list["anyOf"]
        return {"anyOf": [*choices, choices[0]["items"]]}


Choices = Annotated[Annotated[tuple[_Item, ...], MinLen(1)] | None, _OneOrMore()]


_VALUES: Mapping[Form, Any] = {
    Form.DEGREE: Count,
    Form.COUNT: CountOrZero,
    Form.FLAG: bool,
    Form.AXES: Overlaps,
}


def _restriction(key: LayoutKey) -> Any:
    """The type of a key's restriction, and its default: nothing is restricted."""
    value: Any = Literal[key.values] if key.values else _VALUES[key.form]
    if key.most is not None:
        value = Annotated[value, Le(key.most)]
    choices: Any = Choices
    return choices[value], Field(default=None, description=key.meaning)


if TYPE_CHECKING:

    class _LayoutRestrictions(Strict):
        def __getattr__(self, name: str) -> Any: ...

else:
    _LayoutRestrictions = create_model(
        "_LayoutRestrictions",
        __base__=Strict,
        **{key.name: _restriction(key) for key in KEYS.values() if key.restricted},
    )


class Search(_LayoutRestrictions):
    """Restrictions on the choices: a list of values for a layout key; None leaves it free.

    Free means the values of its row in `planner.layouts.keys`: of most keys all that are legal,
    for recompute_layers the fewest that fit, for overlap all that the software has.
    """

    # Splits of the layers over stages and virtual stages, where the software can be told.
    stages: Literal["any", "default"] = "default"
    # Free means only training.precision, and only num_accelerators.
    precision: Choices[TrainingPrecision] = None
    num_accelerators: Counts | None = None
    objective: Objective = "time"
    # For fewest_for_deadline: of the run (training.total_tokens), or of a step.
    deadline: Days | None = None
    step_deadline: Annotated[float, Quantity("s", above=0)] | None = None
    memory: Literal["fits", "fragile"] = "fits"
    tie_fraction: Annotated[float, Ge(0), Lt(1)] = 0.005
    orders: Literal["any", "framework"] = "any"
    # Choose by the upper ends of the prediction intervals of step time and peak memory.
    robust: bool = False


class Scenario(Strict):
    """A job on a cluster; references are inlined, so a scenario is complete by itself."""

    not_planned = FROZEN_PARAMETERS

    model: Annotated[Model, Reference("model")]
    topology: Annotated[Topology, Reference("topology")]
    # The nodes that there are; without it, every domain of the topology is there and complete.
    inventory: Annotated[Inventory, Reference("inventory")] | None = None
    num_accelerators: Accelerators
    training: Training
    software: Annotated[Software, Reference("software")] = Field(
        default_factory=lambda: load(DEFAULT_SOFTWARE, "software", Software)
    )
    search: Search = Search()
    price_per_accelerator_hour: Annotated[float, Quantity("USD/hour", at_least=0)] | None = None

    @model_validator(mode="after")
    def _accelerators_exist(self) -> "Scenario":
        self._check_count(self.topology.num_accelerators, f"of topology {self.topology.name}")
        return self

    @model_validator(mode="after")
    def _nodes_exist(self) -> "Scenario":
        if self.inventory is None:
            return self
        outermost = self.topology.tier_names[-1]
        self._check_count(
            Cluster.of(self.inventory, self.topology).largest,
            f"usable ones that inventory {self.inventory.name} has in one {outermost} domain",
        )
        return self

    def _check_count(self, most: int, whose: str) -> None:
        if self.num_accelerators > most:
            raise InputError(
                f"{self.num_accelerators} accelerators are more than the {most} {whose}",
                key="num_accelerators",
                value=self.num_accelerators,
                allowed=f"an integer from 1 to {most}",
                nearest=str(most),
            )

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
        accelerator = self.topology.accelerator
        able = [name for name in accelerator.peak_flops if name in accelerator.gemm]
        used = [(self.training.precision, "training.precision")]
        used += [(name, "search.precision") for name in self.search.precision or ()]
        for precision, key in used:
            if RECIPES[precision].peak not in able:
                raise InputError(
                    f"{precision} needs {RECIPES[precision].peak} matmuls, which accelerator "
                    f"{accelerator.name} has no figures for",
                    key=key,
                    value=precision,
                    allowed=f"a precision whose matmuls are among {', '.join(able)}",
                )
        return self

    @model_validator(mode="after")
    def _counts_exist(self) -> "Scenario":
        counts = self.search.num_accelerators
        for count in () if counts is None or counts == FREE else counts:
            if count > self.num_accelerators:
                raise InputError(
                    f"{count} accelerators are more than num_accelerators, the most to use",
                    key="search.num_accelerators",
                    value=count,
                    allowed=f"integers from 1 to {self.num_accelerators}, or free",
                )
        return self

    @model_validator(mode="after")
    def _splits_are_for_time(self) -> "Scenario":
        if self.search.stages == "any" and self.search.objective == "least_memory":
            raise InputError(
                "objective least_memory is searched in the default stage split",
                key="search.stages",
                value="any",
                allowed="default, or another objective",
            )
        return self

    @model_validator(mode="after")
    def _deadline_is_complete(self) -> "Scenario":
        search, given = self.search, [self.search.deadline, self.search.step_deadline]
        wanted = search.objective == "fewest_for_deadline"
        if wanted != any(given) or all(given):
            raise InputError(
                "fewest_for_deadline needs one deadline"
                if wanted
                else "a deadline belongs to the objective fewest_for_deadline",
                key="search.deadline" if search.step_deadline is None else "search.step_deadline",
                allowed="with fewest_for_deadline either deadline (such as 30 days, with "
                "training.total_tokens) or step_deadline (such as 8 s); without it neither",
            )
        if search.deadline is not None and self.training.total_tokens is None:
            raise InputError(
                "a deadline of the run needs the run's length",
                key="training.total_tokens",
                allowed="the tokens of the run, a number > 0",
            )
        return self


ScenarioLike = Scenario | str | Path | Mapping[str, Any]
"""A scenario, its name or path, or its document: what calls take in place of one."""


def load_scenario(source: ScenarioLike, overrides: Overrides | None = None) -> Scenario:
    """Return a scenario by name or path, or that of a mapping such as its file holds.

    Args:
        overrides: dotted keys and what replaces what stands there: YAML text, as of `--set`, or a
            value that is no text, such as {"num_accelerators": 512}.

    Raises:
        InputError: no such file, or something in it is wrong.
    """
    if isinstance(source, Scenario):
        if not overrides:
            return source
        source = scenario_to_document(source)
    if isinstance(source, Mapping):
        return from_document(source, "scenario", Scenario, overrides)
    if not isinstance(source, str | Path):
        raise InputError(
            f"{source!r:.60} is no scenario", value=source,
            allowed="a Scenario, a name, a path or a mapping",
        )  # fmt: skip
    return load(source, "scenario", Scenario, overrides)


def scenario_to_document(scenario: Scenario) -> dict[str, Any]:
    """Return the scenario as a mapping for JSON, every reference inlined."""
    return scenario.model_dump(mode="json", by_alias=True)


def scenario_from_document(document: object, path: str = "scenario") -> Scenario:
    """Return the scenario of such a mapping; `path` names its origin in errors.

    Raises:
        InputError: something in it is wrong.
    """
    return from_document(document, path, Scenario)


def inputs_sha256(document: object) -> str:
    """Return the SHA-256 of a document in canonical JSON: sorted keys, no blanks."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
