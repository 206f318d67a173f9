"""A fabric as the text of a file of topologies/fabrics/."""

import json
import re

from planner.inputs.quantities import Figure
from planner.inputs.units import format_quantity, parse_quantity
from planner.inputs.values import Strict
from planner.problem.topology import Fabric

DIGITS = 6


def figures(values: Strict) -> dict[str, dict[str, str]]:
    """Every figure's value, source and status by its key in a file, values as people write them."""
    document = values.model_dump(mode="json", by_alias=True, exclude_none=True)
    found = {}
    for attribute, field in type(values).model_fields.items():
        figure = getattr(values, attribute)
        if isinstance(figure, Figure):
            key = field.alias or attribute
            found[key] = {
                "value": written_value(figure, document[key]["value"]),
                "source": figure.source,
                "status": figure.status,
            }
    return found


def fabric_yaml(fabric: Fabric) -> str:
    """A fabric's figures, one a line, with source and status; reads back to an equal value."""
    lines = [f"name: {written_name(fabric.name)}", f"kind: {fabric.kind}"]
    return "\n".join([*lines, *figure_lines(fabric)]) + "\n"


def figure_lines(values: Strict) -> list[str]:
    """Every figure as a line of YAML."""
    return [
        f"{key}: {{value: {figure['value']}, "
        f"source: {json.dumps(figure['source'], ensure_ascii=False)}, status: {figure['status']}}}"
        for key, figure in figures(values).items()
    ]


def written_value(figure: Figure, exact: object) -> str:
    """A number as people write it where that is the same number, else exactly."""
    if not isinstance(exact, str):
        readable = f"{figure:.{DIGITS}g}"
        return readable if float(readable) == float(figure) else repr(float(figure))
    unit = exact.split(maxsplit=1)[1]
    readable = format_quantity(float(figure), unit, DIGITS)
    return readable if parse_quantity(readable, unit) == float(figure) else exact


def written_name(text: str) -> str:
    """A name as YAML: bare where that is safe."""
    return text if re.fullmatch(r"[A-Za-z][\w.-]*", text) else json.dumps(text)
