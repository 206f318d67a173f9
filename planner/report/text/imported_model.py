"""An imported model in words: its size against the published one, what was read and what not."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType
from rich.text import Text

from planner.frameworks.imported_model import CLOSE_FRACTION, ImportedModel
from planner.inputs.huggingface.config import Remark
from planner.problem.model import Model
from planner.report.text.numbers import in_words, percent, signed_percent
from planner.report.text.pieces import (
    BAD,
    FAIR,
    GOOD,
    STRONG,
    Fact,
    Phrases,
    facts,
    note,
    printable,
    section,
    stacked,
    table,
)

HEADINGS = (
    ("defaults", "Not in the file, so the framework's default", ""),
    ("approximate", "Counted, with an approximate cost", FAIR),
    ("aside", "Left out", FAIR),
    ("unknown", "Not understood", BAD),
)
"""Subject of a remark, the heading of its section, and its style."""


def imported_report(imported: ImportedModel) -> RenderableType:
    """The count first, then dimensions and remarks."""
    return stacked(
        Text(printable(f"{imported.model.name}, from {imported.path}"), STRONG),
        note(printable(imported.form)),
        section("Parameters", _counts(imported)),
        section("Dimensions", facts(_dimensions(imported.model))),
        *(
            _remarks(title, imported.notes.get(subject, ()), style)
            for subject, title, style in HEADINGS
        ),
        _ignored(imported),
    )


def _counts(imported: ImportedModel) -> RenderableType:
    model = imported.model
    rows: list[Fact] = [("counted", _both_ways(model.num_parameters))]
    if model.moe is not None:
        rows.append(("active", _both_ways(model.num_active_parameters)))
    if model.mtp_layers:
        more = model.mtp_layers * model.num_prediction_parameters
        rows.append(("prediction layers", f"{more:,} more"))
    if imported.stated is not None:
        number, source = imported.stated.parameters, printable(imported.stated.source)
        rows.append(("published", f"{_both_ways(number)}, {source}"))
        rows.append(("difference", _difference(imported)))
        rows += [("" if i else "could be", text) for i, text in enumerate(imported.causes)]
    return facts(rows)


def _both_ways(number: float) -> str:
    """'8,030,261,248 (8.030 billion)'."""
    return f"{number:,.0f} ({in_words(number)})"


def _difference(imported: ImportedModel) -> Text:
    fraction = imported.difference_fraction or 0.0
    of = " with the prediction layers" if imported.with_prediction else ""
    difference = f"{signed_percent(fraction, 2)}{of}"
    if imported.agrees:
        return Text(f"{difference}: they agree", GOOD)
    wrong = "; something is wrong" if imported.is_wrong else ""
    style = BAD if imported.is_wrong else FAIR
    return Text(f"{difference}: more than {percent(CLOSE_FRACTION)}{wrong}", style)


def _dimensions(model: Model) -> list[Fact]:
    gate = "gated" if model.gated_mlp else "not gated"
    positions = model.num_position_embeddings
    return [
        ("layers", f"{model.num_layers} of hidden size {model.hidden_size:,}"),
        ("attention", _attention(model)),
        ("feed-forward", f"{model.ffn_hidden_size:,}, {gate}"),
        ("experts", _experts(model)),
        ("vocabulary", f"{model.vocab_size:,}{', tied' if model.tied_embeddings else ''}"),
        ("norms", model.norm),
        ("positions", f"{positions:,} learned" if positions else None),
        ("has", _features(model)),
    ]


def _attention(model: Model) -> str:
    text = f"{model.num_attention_heads} heads of {model.head_dim}"
    if model.mla is not None:
        text = f"{model.num_attention_heads} latent heads of {model.mla.qk_head_dim}"
    elif model.num_key_value_heads != model.num_attention_heads:
        text += f" on {model.num_key_value_heads} of keys and values"
    if model.sliding_window is not None:
        layers = "all" if model.num_windowed_layers is None else str(model.num_windowed_layers)
        text += f"; a window of {model.sliding_window:,} tokens in {layers} layers"
    return text


def _experts(model: Model) -> str | None:
    moe = model.moe
    if moe is None:
        return None
    shared = f", {model.shared_ffn_hidden_size:,} shared" if moe.num_shared_experts else ""
    return (
        f"{moe.num_experts} of {moe.expert_ffn_hidden_size:,}{shared}, {moe.top_k} chosen, in "
        f"{model.num_moe_layers} layers"
    )


def _features(model: Model) -> str | None:
    flags = ("linear_bias", "qk_norm", "attention_sinks", "dropout")
    features = [name for name in flags if getattr(model, name)]
    if model.biases:
        features.append(f"biases of {', '.join(model.biases)}")
    if model.block_norms != "before":
        features.append(f"norms {model.block_norms} blocks")
    return ", ".join(features) or None


def _remarks(title: str, remarks: Sequence[Remark], style: str) -> RenderableType | None:
    if not remarks:
        return None
    rows = [(Text(printable(remark.key), style), printable(remark.text)) for remark in remarks]
    return section(title, table([("", "l"), ("", "w")], rows))


def _ignored(imported: ImportedModel) -> RenderableType | None:
    rows = [(why, Phrases(map(printable, keys))) for why, keys in imported.ignored.items() if keys]
    if not rows:
        return None
    return section("No effect on count or cost", table([("", "w"), ("", "w")], rows))
