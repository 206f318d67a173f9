"""A model as the text of a file of models/: what differs from the defaults, a key a line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence

from planner.inputs.quantities import Figure
from planner.inputs.values import Strict
from planner.problem.model import Model

LAST = ("published_parameters", "published_active_parameters", "source")
"""Keys that a file ends with."""


def model_yaml(model: Model, remarks: Iterable[str] = ()) -> str:
    """The model as YAML under comments; reads back to an equal value."""
    head = [
        "# " + "".join(c if c.isprintable() else "?" for c in " ".join(remark.split()))
        for remark in remarks
    ]
    return "\n".join([*head, *_lines(model, ""), ""])


def _lines(values: Strict, indent: str) -> list[str]:
    names = list(type(values).model_fields)
    last = [name for name in LAST if name in names] if isinstance(values, Model) else []
    found = []
    for name in [*(name for name in names if name not in last), *last]:
        value = getattr(values, name)
        if value == _default(values, name):
            continue
        if isinstance(value, Strict):
            found += [f"{indent}{name}:", *_lines(value, f"{indent}  ")]
        else:
            found.append(f"{indent}{name}: {_written(value)}")
    return found


def _default(values: Strict, name: str) -> object:
    """What a key has where a file leaves it out; for those that must be there nothing is equal."""
    field = type(values).model_fields[name]
    if field.is_required():
        return ...
    given = {other: getattr(values, other) for other in type(values).model_fields}
    return field.get_default(call_default_factory=True, validated_data=given)


def _written(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Figure):
        source = json.dumps(value.source, ensure_ascii=False)
        number = int(value) if value.is_integer() else float(value)
        return f"{{value: {number}, source: {source}, status: {value.status}}}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"[{', '.join(map(_written, value))}]"
    if isinstance(value, str):
        plain = re.fullmatch(r"[A-Za-z][A-Za-z0-9]*([_.-][A-Za-z0-9]+)*", value)
        words = ("true", "false", "null", "nan", "inf")
        return value if plain and value.lower() not in words else _quoted(value)
    return str(value)


def _quoted(text: str) -> str:
    """Text in double quotes, with escapes for what YAML does not take as it is."""
    return "".join(c if c.isprintable() else f"\\U{ord(c):08x}"
                   for c in json.dumps(text, ensure_ascii=False))  # fmt: skip
