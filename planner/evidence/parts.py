"""Shipped accelerators by the names that measurements give them."""

from __future__ import annotations

from functools import cache

from planner.inputs.files import names, read, resolve
from planner.inputs.values import load
from planner.problem.hardware import Accelerator, folded


def accelerator_named(name: str) -> Accelerator | None:
    """The shipped part whose name or alias this is, letter case and punctuation aside."""
    return _accelerator(folded(name))


@cache
def _accelerator(name: str) -> Accelerator | None:
    """The same of a folded name; files without it in their text stay unread."""
    for part in names("accelerator"):
        path = resolve("accelerator", part)
        if name not in folded(path.read_text("utf-8")):
            continue
        raw = read(path).plain()
        if name in map(folded, (raw["name"], *raw.get("aliases", ()))):
            return load(part, "accelerator", Accelerator)
    return None
