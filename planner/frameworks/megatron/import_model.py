"""A model from Megatron-LM arguments, with Megatron's defaults where they are silent."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from planner.errors import InputError
from planner.frameworks.imported_model import ImportedModel
from planner.frameworks.megatron.flags import HIDDEN_SIZE, NUM_LAYERS
from planner.frameworks.megatron.model import read_model
from planner.frameworks.megatron.read import DEFAULT_ORDER, read_table
from planner.frameworks.script import Interpretation, LaunchScript
from planner.inputs.documents import from_plain
from planner.inputs.huggingface.config import Remark
from planner.inputs.values import from_tree
from planner.problem.model import Model

SIZES = (NUM_LAYERS, HIDDEN_SIZE, "--num-attention-heads", "--vocab-size")
"""Arguments without which there is no model."""

UNREADABLE = (
    "--hybrid-override-pattern", "--hybrid-layer-pattern", "--is-hybrid-model",
    "--hybrid-attention-ratio", "--heterogeneous-layers-config-path",
    "--heterogeneous-layers-config-encoded-json", "--moe-latent-size", "--window-size",
    "--window-attn-skip-freq", "--linear-attention-freq", "--experimental-attention-variant",
    "--encoder-num-layers", "--decoder-num-layers", "--retro-add-retriever", "--spec",
    "--softmax-type",
)  # fmt: skip
"""Arguments that change the model and are not read."""

PADDED = Remark(
    "vocab_size",
    "Megatron pads it to a multiple of --make-vocab-size-divisible-by times the tensor-parallel "
    "size: counted as given",
)


def megatron_model(
    script: LaunchScript, name: str | None, changes: Mapping[str, str]
) -> ImportedModel:
    """The model of a script or file of arguments; `changes` are dotted keys to YAML text.

    Raises:
        InputError: not Megatron's, a size missing, or an argument that is not read.
    """
    if script.target != "megatron":
        raise InputError(
            f"is {script.target}'s, which gives no dimensions of a model", path=script.path,
            allowed="a config.json of Hugging Face, or arguments of Megatron-LM",
        )  # fmt: skip
    _refuse_unreadable(script)
    result = Interpretation(script, DEFAULT_ORDER)
    table_values = read_table(result)
    read_model(result, _base(script, changes), table_values)
    model = _validated(result, name, changes)
    ignored = {"training, data, layout": tuple(note.subject for note in script.ignored)}
    return ImportedModel(model, script.path, "Megatron-LM arguments", _notes(result), ignored)


def _refuse_unreadable(script: LaunchScript) -> None:
    for note in script.ignored:
        if note.subject in UNREADABLE:
            raise InputError(
                f"{note.subject} is not read from arguments: write that part of the model file by "
                "hand",
                path=script.path, line=note.line, key=note.subject,
                allowed="arguments of models whose layers are alike",
            )  # fmt: skip


def _base(script: LaunchScript, changes: Mapping[str, str]) -> Model:
    """A model of the sizes that every other default follows.

    Raises:
        InputError: one of them is not given.
    """
    sizes: dict[str, int] = {}
    for flag in SIZES:
        key = flag.removeprefix("--").replace("-", "_")
        value = script.integer(flag)
        if value is None and key not in changes:
            raise InputError(
                "this argument is missing", path=script.path, key=flag,
                allowed=f"an integer in the script, or --set {key}=N",
            )  # fmt: skip
        sizes[key] = value or 1
    hidden, heads = sizes["hidden_size"], sizes["num_attention_heads"]
    return Model.of(
        name="arguments", source="arguments", num_layers=sizes["num_layers"], hidden_size=hidden,
        ffn_hidden_size=4 * hidden, num_attention_heads=heads, head_dim=max(hidden // heads, 1),
        vocab_size=sizes["vocab_size"], gated_mlp=False, tied_embeddings=True, norm="layernorm",
    )  # fmt: skip


def _validated(result: Interpretation, name: str | None, changes: Mapping[str, str]) -> Model:
    """The model that the keys make.

    Raises:
        InputError: they make none; placed at the argument that states the key.
    """
    path = PurePath(result.script.path)
    document: dict[str, Any] = {
        "name": name or path.stem or "model",
        "source": f"{path.name} (Megatron-LM arguments)",
        **_nested(result.model),
    }
    if "vocab_size" in changes:  # it may be missing in the script, where _base counts 1
        document.pop("vocab_size", None)
    try:
        return from_tree(from_plain(document, result.script.path), Model, changes)
    except InputError as error:
        raise result.placed(error, f"model.{error.key}") from None


def _nested(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted keys as a document; what is none is left out."""
    document: dict[str, Any] = {}
    for key, value in keys.items():
        if value is None or value == ():
            continue
        *owners, last = key.split(".")
        place = document
        for owner in owners:
            place = place.setdefault(owner, {})
        place[last] = value
    return document


def _notes(result: Interpretation) -> dict[str, tuple[Remark, ...]]:
    """What is remarked of the model's keys, by subject."""
    approximations = (
        Remark(note.subject.removeprefix("model."), note.text)
        for note in result.approximations
        if note.subject.startswith("model")
    )
    return {
        "defaults": (*_noted_defaults(result), *_unstated(result)),
        "approximate": (*approximations, PADDED),
        "unknown": tuple(Remark(note.subject, note.text) for note in result.script.unread),
    }


def _noted_defaults(result: Interpretation) -> list[Remark]:
    """What Megatron does about the model where the arguments are silent."""
    return [
        Remark(note.subject.removeprefix("model."), note.text)
        for note in result.defaults
        if note.subject.startswith("model.")
    ]


def _unstated(result: Interpretation) -> list[Remark]:
    """Keys that no argument states, with Megatron's values."""
    stated = {one.key for one in result.stated}
    return [
        Remark(key, f"{str(value).lower() if isinstance(value, bool) else value}, Megatron's "
               "default")
        for key, value in result.model.items()
        if f"model.{key}" not in stated and value not in (None, 0, ())
    ]  # fmt: skip
