"""Answers as JSON documents: what each starts with, and how its values are written.

An answer is a frozen dataclass. pydantic writes its fields in their order, so that the JSON keys
are the names of the fields; where that differs, the declaration of the field says so.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Annotated, Any

from pydantic import PlainSerializer, PlainValidator, TypeAdapter

from planner import __version__
from planner.errors import InputError
from planner.layouts.layout import Layout
from planner.search.space.given import given_values

SCHEMA_VERSION = 3
"""Of the documents of plans and of the answers that hold plans; one more when a key is renamed."""


def versions() -> dict[str, Any]:
    """The versions of the schema and of the program, with which every document starts."""
    return {"schema_version": SCHEMA_VERSION, "planner_version": __version__}


def document(answer: object) -> dict[str, Any]:
    """A dataclass as one JSON document, versions first."""
    return {**versions(), **json_values(answer)}


def json_values(answer: Any) -> dict[str, Any]:
    """The fields of a dataclass as JSON values: tuples are lists, layouts have all their keys."""
    values: dict[str, Any] = adapter(answer.__class__).dump_python(answer, mode="json")
    return values


@cache
def adapter(kind: Any) -> TypeAdapter[Any]:
    """The reader and writer of a dataclass. Made once: that takes longer than reading a file."""
    return TypeAdapter(kind)


def _layout_of(value: object) -> Layout:
    """The layout of a document, whose values are of the right types and agree with each other.

    Raises:
        InputError: with the key that is wrong.
    """
    if not isinstance(value, dict):
        raise InputError("it is no layout", value=value, allowed="a mapping of layout keys")
    values = given_values(value, "")
    for key, read in values.items():  # a command line gives texts, a document must not
        written = list(read) if isinstance(read, tuple) else read
        if type(value[key]) is not type(written):
            text = isinstance(value[key], str)
            raise InputError(
                "text where a number is expected" if text else "a value of another type",
                key=key, value=value[key], allowed=json.dumps(written) + ", without quotes" * text,
            )  # fmt: skip
    layout = Layout.from_document(values)
    for key in ("dp", "edp"):  # the keys that follow from others
        if values.get(key, getattr(layout, key)) != getattr(layout, key):
            raise InputError(
                f"{key} follows from the other keys", key=key, value=values[key],
                nearest=str(getattr(layout, key)),
            )  # fmt: skip
    return layout


LayoutValue = Annotated[Layout, PlainValidator(_layout_of), PlainSerializer(Layout.to_document)]
"""A layout in an answer, written with the keys of `--layout`."""
