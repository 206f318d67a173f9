"""Layouts and rank orders in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.text import Text

from planner.layouts.keys import KEYS
from planner.layouts.layout import Layout
from planner.report.text.pieces import FAINT, STRONG, Fact, Phrases

NOT_IN_LABELS = (
    "overlap", "cp_kind", "dispatcher", "sp", "dp_shard", "cp_a2a", "num_microbatches",
)  # fmt: skip
"""Keys that a label leaves out, in the order in which they are added to tell two labels apart."""


def layout_labels(layouts: Sequence[Layout]) -> list[str]:
    """A label each; labels that would be equal name the other keys in which they differ."""
    labels = [layout.label() for layout in layouts]
    documents = [layout.to_document() for layout in layouts]
    for label in dict.fromkeys(labels):
        # keys are appended only where they differ: labels stay short
        equal = [i for i, own in enumerate(labels) if own == label]
        for key in NOT_IN_LABELS:
            values = [documents[i][key] for i in equal]
            if any(value != values[0] for value in values):
                for i, value in zip(equal, values, strict=True):
                    labels[i] += f" {key}={_value(value)}"
    return labels


def _value(value: Any) -> str:
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


def layout_facts(
    name: str, layout: Layout, label: str | None = None, strong: bool = False
) -> list[Fact]:
    """Three lines under a name: degrees, how the layout runs, and its label."""
    return [
        (name, Text(degrees_in_words(layout), STRONG if strong else "")),
        ("", Phrases(details_in_words(layout))),
        ("", Text(layout.label() if label is None else label, FAINT)),
    ]


def degrees_in_words(layout: Layout) -> str:
    """The degrees above 1: 'tensor 8 + sequence · pipeline 2 × 15 virtual · data 64'."""
    d = layout.to_document()
    tensor = f"tensor {d['tp']}" + (" + sequence" if d["sp"] else "")
    kind = d["cp_kind"].replace("_", "-")
    if d.get("cp_a2a"):
        kind = f"a2a {d['cp_a2a']} × ring {d['cp'] // d['cp_a2a']}"
    context = f"context {d['cp']} ({kind})"
    experts = f"expert {d['ep']}" + (f" ({d['dispatcher']})" if d.get("dispatcher") else "")
    if d["etp"] > 1:
        experts += f" × expert tensor {d['etp']}"
    pipeline = f"pipeline {d['pp']}" + (f" × {d['vp']} virtual" if d["vp"] > 1 else "")
    data = f"data {d['dp']}"
    if d["dp_replicate"] > 1:
        data += f" ({d['dp_shard']} sharded × {d['dp_replicate']} replicated)"
    # a degree of 1 is no parallelism
    degrees = {
        tensor: d["tp"],
        context: d["cp"],
        experts: d["ep"] * d["etp"],
        pipeline: d["pp"],
        data: d["dp"],
    }
    return " · ".join(text for text, degree in degrees.items() if degree > 1) or "one accelerator"


def details_in_words(layout: Layout) -> list[str]:
    """How a layout runs, key by key: micro-batches, schedule, ZeRO stage, recompute, overlap."""
    document = layout.to_document()
    phrases = (key.phrase(document) for key in KEYS.values())
    return [phrase for phrase in phrases if phrase]


def order_in_words(order: Sequence[Sequence[Any]]) -> str:
    """A rank order, innermost first, without factors of 1: 'tp 8, dp_shard 128, pp 16'."""
    return ", ".join(f"{atom} {factor}" for atom, factor in order if factor > 1) or "a single rank"
