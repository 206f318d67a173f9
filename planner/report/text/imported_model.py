"""An imported model in words: its size beside the one stated, what was read and what was not."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from planner.frameworks.imported_model import CLOSE_FRACTION, ImportedModel
from planner.inputs.huggingface.config import Remark
from planner.problem.model import Model
from planner.report.text.numbers import percent, signed_percent, words
from planner.report.text.pieces import (
    BAD,
    FAIR,
    GOOD,
    STRONG,
    Phrases,
    facts,
    note,
    printable,
    section,
    table,
)

HEADINGS = (
    ("defaults", "Not in the file, so as its framework has it", ""),
    ("approximate", "Counted, and costed roughly", FAIR),
    ("aside", "Left aside", FAIR),
    ("unknown", "Not understood", BAD),
)


def imported_report(found: ImportedModel) -> RenderableType:
    """The count first, then dimensions and remarks."""
    parts = [
        Text(printable(f"{found.model.name}, from {found.path}"), STRONG),
        note(printable(found.form)),
        section("Parameters", _counts(found)),
        section("Dimensions", facts(_dimensions(found.model))),
        *(
            _remarks(title, found.notes.get(subject, ()), style)
            for subject, title, style in HEADINGS
        ),
        _ignored(found),
    ]
    return Group(*(part for part in parts if part is not None))


def _counts(found: ImportedModel) -> RenderableType:
    model = found.model
    rows: list[tuple[str, RenderableType | str | None]] = [
        ("counted", f"{model.num_parameters:,} ({words(model.num_parameters)})")
    ]
    if model.moe is not None:
        active = model.num_active_parameters
        rows.append(("active", f"{active:,} ({words(active)})"))
    if model.mtp_layers:
        more = model.mtp_layers * model.num_prediction_parameters
        rows.append(("prediction layers", f"{more:,} more"))
    if found.stated is not None:
        number = found.stated.parameters
        rows.append(
            ("stated", f"{number:,.0f} ({words(number)}), {printable(found.stated.source)}")
        )
        rows.append(("difference", _difference(found)))
        rows += [("" if i else "could be", text) for i, text in enumerate(found.causes)]
    return facts(rows)


def _difference(found: ImportedModel) -> Text:
    fraction = found.difference_fraction or 0.0
    of = " with the prediction layers" if found.with_prediction else ""
    if found.agrees:
        return Text(f"{signed_percent(fraction, 2)}{of}: they agree", GOOD)
    more = "; something is wrong" if found.is_wrong else ""
    limit = percent(CLOSE_FRACTION)
    return Text(f"{signed_percent(fraction, 2)}{of}: more than {limit}{more}",
                BAD if found.is_wrong else FAIR)  # fmt: skip


def _dimensions(model: Model) -> list[tuple[str, RenderableType | str | None]]:
    attention = f"{model.num_attention_heads} heads of {model.head_dim}"
    if model.mla is not None:
        attention = f"{model.num_attention_heads} latent heads of {model.mla.qk_head_dim}"
    elif model.num_key_value_heads != model.num_attention_heads:
        attention += f" on {model.num_key_value_heads} of keys and values"
    if model.sliding_window is not None:
        layers = "all" if model.num_windowed_layers is None else str(model.num_windowed_layers)
        attention += f"; a window of {model.sliding_window:,} tokens in {layers} layers"
    experts = None
    if model.moe is not None:
        moe = model.moe
        shared = f", {model.shared_ffn_hidden_size:,} shared" if moe.num_shared_experts else ""
        experts = (
            f"{moe.num_experts} of {moe.expert_ffn_hidden_size:,}{shared}, {moe.top_k} chosen, in "
            f"{model.num_moe_layers} layers"
        )
    has = [name for name in ("linear_bias", "qk_norm", "attention_sinks", "dropout")
           if getattr(model, name)]  # fmt: skip
    has += [f"biases of {', '.join(model.biases)}"] if model.biases else []
    has += [f"norms {model.block_norms} blocks"] if model.block_norms != "before" else []
    gate = "gated" if model.gated_mlp else "not gated"
    return [
        ("layers", f"{model.num_layers} of hidden size {model.hidden_size:,}"),
        ("attention", attention),
        ("feed-forward", f"{model.ffn_hidden_size:,}, {gate}"),
        ("experts", experts),
        ("vocabulary", f"{model.vocab_size:,}{', tied' if model.tied_embeddings else ''}"),
        ("norms", model.norm),
        ("positions", f"{model.num_position_embeddings:,} learned"
         if model.num_position_embeddings else None),
        ("has", ", ".join(has) or None),
    ]  # fmt: skip


def _remarks(title: str, remarks: Sequence[Remark], style: str) -> RenderableType | None:
    if not remarks:
        return None
    rows = [(Text(printable(remark.key), style), printable(remark.text)) for remark in remarks]
    return section(title, table([("", "l"), ("", "w")], rows))


def _ignored(found: ImportedModel) -> RenderableType | None:
    rows = [(why, Phrases(map(printable, keys))) for why, keys in found.ignored.items() if keys]
    if not rows:
        return None
    return section("Changes nothing that is counted", table([("", "w"), ("", "w")], rows))
