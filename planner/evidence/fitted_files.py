"""Fitted numbers as the text of the YAML files that hold them, each with source and status.

    fabric_yaml(fabric)             a file of topologies/fabrics/
    intervals_yaml(table)           scenarios/published/prediction_intervals.yaml
    profile_yaml(fit, name)         a file of software/ with other coefficients
    coefficients_yaml(software)     a file of software/ with all coefficients of a profile
    accelerator_yaml(file, gemm)    a file of topologies/accelerators/ with other matmul figures

In the last three everything else stays as it is, comments included. Every text reads back to equal
values.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping
from pathlib import Path

from planner.cost.prediction_intervals import PredictionErrors
from planner.evidence.profile_fit import ProfileFit
from planner.inputs.files import names, resolve
from planner.inputs.quantities import Figure
from planner.inputs.units import format_quantity, parse_quantity
from planner.inputs.values import Strict, load
from planner.problem.hardware import GemmCoefficients
from planner.problem.precision import Precision
from planner.problem.software import Software
from planner.problem.topology import Fabric

DIGITS = 6

INTERVALS_HEAD = """\
# Prediction intervals of step times and peak memory: low and high ends as measured / predicted.
# Written by `planner calibrate errors`; kinds and their order are KINDS of
# planner/cost/prediction_intervals.py.
"""

FEATURES_HEAD = """\
# Feature of planner/cost/features.py: accelerator types with measured runs of it.
features:"""


# ---------------------------------------------------------------- numbers


def figures(values: Strict) -> dict[str, dict[str, str]]:
    """Every figure's value, source and status by its key in a file, values as people write them."""
    document = values.model_dump(mode="json", by_alias=True, exclude_none=True)
    written = {}
    for attribute, field in type(values).model_fields.items():
        figure = getattr(values, attribute)
        if isinstance(figure, Figure):
            key = field.alias or attribute
            written[key] = {
                "value": _value(figure, document[key]["value"]),
                "source": figure.source,
                "status": figure.status,
            }
    return written


def _lines(values: Strict) -> list[str]:
    """Every figure as a line of YAML."""
    return [
        f"{key}: {_flow_mapping(figure['value'], figure['source'], figure['status'])}"
        for key, figure in figures(values).items()
    ]


def _flow_mapping(value: str, source: str, status: str) -> str:
    quoted = json.dumps(source, ensure_ascii=False)  # JSON's quotes are YAML's
    return f"{{value: {value}, source: {quoted}, status: {status}}}"


def _value(figure: Figure, exact: object) -> str:
    """A number as people write it where that reads back to the same number, else exactly.

    exact: as pydantic dumps it, text with a unit or a plain number.
    """
    if not isinstance(exact, str):
        readable = f"{figure:.{DIGITS}g}"
        return readable if float(readable) == float(figure) else repr(float(figure))
    unit = exact.split(maxsplit=1)[1]
    readable = format_quantity(float(figure), unit, DIGITS)
    return readable if parse_quantity(readable, unit) == float(figure) else exact


def _name(text: str) -> str:
    """A name as YAML, without quotes where that is safe."""
    return text if re.fullmatch(r"[A-Za-z][\w.-]*", text) else json.dumps(text)


# ---------------------------------------------------------------- new files


def fabric_yaml(fabric: Fabric) -> str:
    """A fabric's figures, one a line."""
    lines = [f"name: {_name(fabric.name)}", f"kind: {fabric.kind}"]
    if not fabric.dispatch_kernels:
        lines.append("dispatch_kernels: false")
    return "\n".join([*lines, *_lines(fabric)]) + "\n"


def intervals_yaml(table: PredictionErrors) -> str:
    """Prediction intervals by quantity and kind."""
    lines = [INTERVALS_HEAD.rstrip(), f"coverage: {_plain(table.coverage)}", FEATURES_HEAD]
    lines += [f"  {name}: [{', '.join(parts)}]" for name, parts in table.features.items()]
    for quantity in ("step_seconds", "peak_bytes"):
        lines.append(f"{quantity}:")
        for kind, interval in getattr(table, quantity).items():
            lines += [
                f"  {kind}:",
                f"    rows: {interval.rows}",
                f"    sources: {interval.sources}",
                f"    low: {_plain(interval.low)}",
                f"    high: {_plain(interval.high)}",
            ]
    return "\n".join(lines) + "\n"


def _plain(figure: Figure) -> str:
    """A figure without a unit."""
    return _flow_mapping(_value(figure, float(figure)), figure.source, figure.status)


# ---------------------------------------------------------------- shipped files with other numbers


def profile_yaml(fit: ProfileFit, name: str | None = None) -> str:
    """The shipped file of the profile with its fitted coefficients, and another name if given.

    A profile that does not ship, or was changed since, has no file to keep: its value is written.
    """
    software = fit.tuned.replace(name=name or fit.software.name)
    if not _ships(fit.software):
        document = software.model_dump(mode="json", by_alias=True)
        return json.dumps(document, indent=2, ensure_ascii=False) + "\n"  # JSON is YAML too
    written = figures(software.coefficients)
    changes: Changes = {("name",): _name(software.name)}
    changes |= {("coefficients", key): _flow_mapping(**written[key]) for key in fit.determined}
    return _with_changes(resolve("software", fit.software.name), changes)


def coefficients_yaml(software: Software) -> str:
    """The shipped file of a profile with the coefficients of this value of it."""
    changes: Changes = {
        ("coefficients", key): _flow_mapping(**figure)
        for key, figure in figures(software.coefficients).items()
    }
    return _with_changes(resolve("software", software.name), changes)


def _ships(software: Software) -> bool:
    return software.name in names("software") and (
        load(software.name, "software", Software) == software
    )


def accelerator_yaml(file: Path, gemm: Mapping[Precision, GemmCoefficients]) -> str:
    """The accelerator's file with other matmul coefficients for some precisions."""
    changes: Changes = {
        ("gemm", precision): "\n".join(_lines(coefficients))
        for precision, coefficients in gemm.items()
    }
    return _with_changes(file, changes)


Changes = dict[tuple[str, ...], str]
"""Path of keys in a file → another value, as YAML."""


def _with_changes(file: Path, changes: Changes) -> str:
    """The file's text with other values; all else, comments included, stays as it is."""
    from ruamel.yaml import YAML  # imported here: it takes 0.1 s

    yaml = YAML(typ="rt")
    # the style of the files that ship, so that nothing else changes
    yaml.preserve_quotes = True
    yaml.width = 2**16
    yaml.indent(mapping=2, sequence=4, offset=2)
    document = yaml.load(file.read_text("utf-8"))
    for (*path, key), value in changes.items():
        parent = document
        for outer in path:
            parent = parent[outer]
        parent[key] = yaml.load(value)
    text = io.StringIO()
    yaml.dump(document, text)
    return text.getvalue()
