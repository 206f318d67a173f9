"""Launch targets: what a framework calls things, in the version that is written for.

The tables of `targets/` are read both ways: a plan's keys and values as the target's settings, and
a script's settings as keys and values.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import Field

from planner.inputs.quantities import Figure, Sourced
from planner.inputs.values import Strict, load
from planner.problem.software import OrderAxis

Setting = str | int | bool

Settings = dict[str, Setting]
"""A target's own names to values; true is a switch."""


class Variable(Strict):
    """An environment variable that a launch sets, the condition by name, and who says so."""

    value: str
    where: str
    source: str


class Target(Strict):
    """One target: its version, whose plans it takes, its names and its codes.

    names: the planner's dotted key → a setting of the same value. codes: key → value, as text →
    the settings that say it. limits: values of search keys that it can express. tier: how surely
    its files are read back (1 by the real parser, 2 with stand-ins, 3 not run).
    """

    name: str
    description: str
    version: str
    tier: Literal[1, 2, 3]
    parser: str
    software: tuple[str, ...] = ()  # profiles whose plans it takes; the first is re-solved under
    # Further profiles that scripts of this target may be checked under.
    checked_under: tuple[str, ...] = ()
    orders: dict[str, tuple[OrderAxis, ...]] = Field(default_factory=dict)
    names: dict[str, str] = Field(default_factory=dict)
    codes: dict[str, dict[str, dict[str, Setting]]] = Field(default_factory=dict)
    limits: dict[str, tuple[int, ...]] = Field(default_factory=dict)

    accelerators_per_host: dict[str, Annotated[Figure, Sourced(at_least=1)]] = Field(
        default_factory=dict
    )
    environment: dict[str, Variable] = Field(default_factory=dict)

    def values(self, key: str) -> tuple[str, ...]:
        """Values of a key that the target can say, as text."""
        return tuple(self.codes[key]) if key in self.codes else ()

    def says(self, key: str, value: object) -> bool:
        """Whether the target can say this value."""
        return key in self.names or text_of(value) in self.codes.get(key, {})

    def settings(self, key: str, value: object) -> Settings:
        """The settings that say a key's value."""
        if key in self.names:
            assert isinstance(value, str | int | bool)
            return {self.names[key]: value}
        return dict(self.codes[key][text_of(value)])

    def read(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The planner's keys and values of given settings; values of codes as text.

        Of a key's values the one that most of the settings say; a key that none says is left out,
        but for a value that is said by no setting at all.
        """
        found: dict[str, Any] = {
            key: settings[name] for key, name in self.names.items() if name in settings
        }
        given = {(name, text_of(value)) for name, value in settings.items()}
        for key, codes in self.codes.items():
            said = [
                value
                for value, code in codes.items()
                if {(name, text_of(setting)) for name, setting in code.items()} <= given
            ]
            if said:
                found[key] = max(said, key=lambda value: len(codes[value]))
        return found


def text_of(value: object) -> str:
    """A value as the tables write it."""
    return ("false", "true")[value] if isinstance(value, bool) else str(value)


@cache
def target(name: str) -> Target:
    """A shipped target.

    Raises:
        UnknownNameError: there is no such target.
    """
    return load(name, "target", Target)
