"""Options that several commands share, and the checks that click does not do."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import wraps
from typing import TYPE_CHECKING, Any, Literal

import click

from planner.errors import nearest_of

if TYPE_CHECKING:
    from planner.problem.scenario import Scenario

Command = Callable[..., Any]
Decorator = Callable[[Command], Command]
Half = Literal["fit", "test", "all"]

_EXAMPLES = {"KEY=VALUE": "training.global_batch_size=512", "NAME=VALUE": "NNODES=16"}


class Choice(click.Choice[str]):
    """A choice that answers a misspelt value with the nearest one."""

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        """What is allowed, and the nearest choice."""
        near = nearest_of(str(value), self.choices)
        hint = f"; did you mean '{near}'?" if near else ""
        return f"'{value}' is not one of {', '.join(self.choices)}{hint}"


class LayoutCommand(click.Command):
    """A command whose help ends with the keys that `--layout` takes."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """One line a key: what it means, what may be written, its default."""
        from planner.layouts.keys import KEYS

        with formatter.section("Keys of --layout"):
            formatter.write_dl(
                [
                    (key.name, f"{key.meaning}: {key.allowed}; {key.without}")
                    for key in KEYS.values()
                ]
            )


# ---------------------------------------------------------------- checks of values


def assignments(
    ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]
) -> dict[str, str]:
    """KEY=VALUE, any number of times, as a mapping."""
    values = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise click.BadParameter(
                f"'{text}' is not {param.metavar}, such as {_EXAMPLES[str(param.metavar)]}",
                ctx,
                param,
            )
        if key.strip() in values:
            raise click.BadParameter(f"{key.strip()} is set twice", ctx, param)
        values[key.strip()] = value.strip()
    return values


def _finite(ctx: click.Context, param: click.Parameter, value: float | None) -> float | None:
    # click's FloatRange lets nan through
    if value is not None and not math.isfinite(value):
        raise click.BadParameter(f"{value} is not a finite number", ctx, param)
    return value


def _quality(ctx: click.Context, param: click.Parameter, text: str) -> str:
    letters = text.upper()
    if not letters or set(letters) - set("ABCD"):
        raise click.BadParameter(f"'{text}' must be made of the letters A to D", ctx, param)
    return letters


# ---------------------------------------------------------------- several options, one value


def gathered(cls: Any, name: str) -> Decorator:
    """Give a command one value of a dataclass, `name`, instead of a parameter for each field."""

    def decorate(command: Command) -> Command:
        @wraps(command)
        def with_one_value(**values: Any) -> Any:
            # what the dataclass does not name belongs to the command itself
            own = {item.name: values.pop(item.name) for item in fields(cls)}
            return command(**values, **{name: cls(**own)})

        return with_one_value

    return decorate


@dataclass(frozen=True, slots=True)
class NamedScenario:
    """A scenario as the command line names it: a shipped name or a file, changed by --set."""

    scenario: str
    overrides: Mapping[str, str] = field(default_factory=dict)

    def load(self, changes: Mapping[str, str] | None = None) -> Scenario:
        """The scenario, with further changes.

        Raises:
            InputError: no such scenario, or a value of it is wrong.
        """
        from planner import api

        return api.load_scenario(self.scenario, {**self.overrides, **(changes or {})})


def scenario(command: Command) -> Command:
    """SCENARIO and --set, as the parameter `named` of type `NamedScenario`"""
    # the help lists options in the order of the decorators, the outermost first
    return click.argument("scenario")(overrides(gathered(NamedScenario, "named")(command)))


@dataclass(frozen=True, slots=True)
class Rows:
    """Which measured runs count: letters of quality, the lowest MFU of timed ones, and the half."""

    quality: str
    min_mfu: float
    half: Half


def rows(min_mfu: float, half: Half) -> Decorator:
    """--quality, --min-mfu and --half, as the parameter `rows` of type `Rows`"""

    def decorate(command: Command) -> Command:
        half_option = click.option(
            "--half", type=Choice(["fit", "test", "all"]), default=half, show_default=True,
            help="One half of the rows, fit or test, or all. Runs that compare with each other are "
            "in the same half.",
        )  # fmt: skip
        command = half_option(gathered(Rows, "rows")(command))
        return quality(minimum_mfu(min_mfu)(command))

    return decorate


# ---------------------------------------------------------------- single options


def as_json(command: Command) -> Command:
    """--json"""
    return click.option(
        "--json", "as_json", is_flag=True, help="Print one JSON document and nothing else."
    )(command)


def overrides(command: Command) -> Command:
    """--set KEY=VALUE, any number of times"""
    return click.option(
        "--set", "overrides", multiple=True, metavar="KEY=VALUE", callback=assignments,
        help="Override a key of the scenario (dotted; the value is YAML). Repeatable.",
    )(command)  # fmt: skip


def out(required: bool = False, text: str = "Write plan.json and report.txt here.") -> Decorator:
    """--out DIR"""
    return click.option(
        "--out", "out", metavar="DIR", required=required,
        type=click.Path(file_okay=False), help=text,
    )  # fmt: skip


def top(command: Command) -> Command:
    """--top K"""
    return click.option(
        "--top", "top_k", type=click.IntRange(1, 1000), default=5, show_default=True, metavar="K",
        help="How many of the best layouts to prove and show.",
    )(command)  # fmt: skip


def robust(command: Command) -> Command:
    """--robust"""
    return click.option(
        "--robust", is_flag=True,
        help="Choose by the upper ends of the prediction intervals of step time and peak memory.",
    )(command)  # fmt: skip


def time_limit(command: Command) -> Command:
    """--time-limit S"""
    return click.option(
        "--time-limit", "time_limit", type=click.FloatRange(min=0, min_open=True), metavar="S",
        callback=_finite, help="Stop the search after S seconds with what is proven so far.",
    )(command)  # fmt: skip


def quality(command: Command) -> Command:
    """--quality AB"""
    return click.option(
        "--quality", default="AB", show_default=True, callback=_quality, metavar="LETTERS",
        help="Qualities of the measured rows to use.",
    )(command)  # fmt: skip


def minimum_mfu(default: float) -> Decorator:
    """--min-mfu F"""
    return click.option(
        "--min-mfu", type=click.FloatRange(0, 1), default=default, show_default=True,
        callback=_finite, help="Leave out timed rows with a lower measured MFU.",
    )  # fmt: skip
