"""A layout and a rank order in words, from their documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.text import Text

from planner.inputs.text import counted_runs
from planner.layouts.layout import layout_label
from planner.report.text.numbers import plural
from planner.report.text.pieces import FAINT, STRONG, Fact, Phrases

SCHEDULE_WORDS = {
    "1f1b": "1F1B",
    "interleaved": "interleaved 1F1B",
    "zb-h1": "zero-bubble H1",
    "interleaved-zb": "interleaved zero-bubble",
    "zb-v": "zero-bubble V",
    "dualpipe": "DualPipe, two stages a rank",
    "dualpipev": "DualPipeV",
}

NOT_IN_LABELS = (
    "overlap", "cp_kind", "dispatcher", "sp", "dp_shard", "cp_a2a", "num_microbatches",
)  # fmt: skip
"""Keys that a label leaves out, in the order in which they are added to tell two labels apart."""


def layout_labels(documents: Sequence[Mapping[str, Any]]) -> list[str]:
    """A label each; labels that would be equal name the other keys in which they differ."""
    labels = [layout_label(document) for document in documents]
    for label in dict.fromkeys(labels):
        # keys are appended only where they differ: labels stay short
        equal = [i for i, own in enumerate(labels) if own == label]
        for key in NOT_IN_LABELS:
            values = [documents[i].get(key) for i in equal]
            if any(value != values[0] for value in values):
                for i, value in zip(equal, values, strict=True):
                    labels[i] += f" {key}={_value(value)}"
    return labels


def _value(value: Any) -> str:
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


def layout_facts(
    name: str, document: Mapping[str, Any], label: str | None = None, strong: bool = False
) -> list[Fact]:
    """Three lines under a name: degrees, how the layout runs, and its label."""
    return [
        (name, Text(degrees_in_words(document), STRONG if strong else "")),
        ("", Phrases(details_in_words(document))),
        ("", Text(layout_label(document) if label is None else label, FAINT)),
    ]


def degrees_in_words(document: Mapping[str, Any]) -> str:
    """The degrees above 1: 'tensor 8 + sequence · pipeline 2 × 15 virtual · data 64'."""
    d = document
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


def details_in_words(document: Mapping[str, Any]) -> list[str]:
    """How a layout runs: micro-batches, schedule, ZeRO stage, recompute, offload, overlap."""
    d = document
    microbatches = "micro-batches" if d["num_microbatches"] > 1 else "micro-batch"
    zero = f"ZeRO-{d['zero_stage']}"
    if d["zero_stage"]:
        zero += f" over {d['dp_shard'] * d['cp']}"
    offload, overlap = d.get("offload", "none"), d["overlap"]
    split = d.get("stage_layers") or []
    details = [
        f"{d['num_microbatches']} {microbatches} of {d['mbs']}",
        SCHEDULE_WORDS[d["schedule"]] if d["pp"] > 1 else None,
        zero,
        recompute_in_words(d),
        None if offload == "none" else f"{offload.replace('+', ' and ')} on host",
        "no overlap" if overlap == "none" else f"overlap of {overlap.replace('+', ', ')}",
    ]
    if len(set(split)) > 1:
        of = "stage" if len(split) == d["pp"] else "chunk"
        details.append(f"layers by {of} {counted_runs(split)}")
    return [text for text in details if text]


def recompute_in_words(document: Mapping[str, Any]) -> str:
    """What is recomputed: 'full recompute of the first 3 layers of a stage'."""
    if document["recompute"] == "none":
        return "no recompute"
    layers = document.get("recompute_layers")
    if not layers:
        return f"{document['recompute']} recompute"
    first = "the first layer" if layers == 1 else f"the first {plural(layers, 'layer')}"
    piece = "chunk" if document["vp"] > 1 else "stage"
    return f"{document['recompute']} recompute of {first} of a {piece}"


def order_in_words(order: Sequence[Sequence[Any]]) -> str:
    """A rank order, innermost first, without factors of 1: 'tp 8, dp_shard 128, pp 16'."""
    return ", ".join(f"{atom} {factor}" for atom, factor in order if factor > 1) or "a single rank"
