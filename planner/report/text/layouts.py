"""A layout and a rank order in words, from their documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from planner.layouts.keys import KEYS
from planner.layouts.layout import layout_label

TELLING = ("overlap", "cp_kind", "dispatcher", "sp", "dp_shard", "cp_a2a", "num_microbatches")
"""Keys that a label leaves out, in the order in which they are added to tell two labels apart."""


def layout_labels(documents: Sequence[Mapping[str, Any]]) -> list[str]:
    """A label each; those that would read alike say in which other keys they differ."""
    labels = [layout_label(document) for document in documents]
    for label in dict.fromkeys(labels):
        alike = [i for i, own in enumerate(labels) if own == label]
        for key in TELLING:
            values = [documents[i].get(key) for i in alike]
            if any(value != values[0] for value in values):
                for i, value in zip(alike, values, strict=True):
                    labels[i] += f" {key}={_value(value)}"
    return labels


def _value(value: Any) -> str:
    return (
        "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    )


def layout_in_words(document: Mapping[str, Any]) -> tuple[str, list[str]]:
    """The degrees, and how the pieces run."""
    d = document
    tensor = f"tensor {d['tp']}" + (" with sequence" if d["sp"] else "")
    kind = d["cp_kind"].replace("_", "-")
    if d.get("cp_a2a"):
        kind = f"a2a {d['cp_a2a']} × ring {d['cp'] // d['cp_a2a']}"
    context = f"context {d['cp']}" + (f" ({kind})" if d["cp"] > 1 else "")
    pipeline = f"pipeline {d['pp']}" + (f" × {d['vp']} virtual" if d["vp"] > 1 else "")
    data = f"data {d['dp']}"
    if d["dp_replicate"] > 1:
        data += f" ({d['dp_shard']} sharded × {d['dp_replicate']} replicated)"
    experts = f"expert {d['ep']}" + (f" ({d['dispatcher']})" if d.get("dispatcher") else "")
    if d["etp"] > 1:
        experts += f" × expert tensor {d['etp']}"
    parts = {
        tensor: d["tp"],
        context: d["cp"],
        experts: d["ep"] * d["etp"],
        pipeline: d["pp"],
        data: d["dp"],
    }
    degrees = " · ".join(text for text, degree in parts.items() if degree > 1)

    phrases = (key.phrase(d) for key in KEYS.values())
    return degrees or "one accelerator", [phrase for phrase in phrases if phrase]


def order_in_words(order: Sequence[Sequence[Any]]) -> str:
    """A rank order, innermost first, without factors of 1: 'tp 8, dp_shard 128, pp 16'."""
    parts = [f"{atom} {factor}" for atom, factor in order if factor > 1]
    return ", ".join(parts) or "a single rank"
