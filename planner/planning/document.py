"""Answers as JSON documents: what every one of them starts with, and its fields."""

from __future__ import annotations

from dataclasses import asdict, fields, replace
from typing import Any

from planner import __version__

SCHEMA_VERSION = 2


def document(answer: Any, **own: Any) -> dict[str, Any]:
    """A dataclass as one JSON document.

    own: what stands in place of fields of these names, or beside the fields.
    """
    replaced = dict.fromkeys(own.keys() & {field.name for field in fields(answer)})
    return {
        "schema_version": SCHEMA_VERSION,
        "planner_version": __version__,
        **asdict(replace(answer, **replaced)),
        **own,
    }
