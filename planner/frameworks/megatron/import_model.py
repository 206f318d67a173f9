"""A model from Megatron-LM arguments alone, with Megatron's defaults."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from planner.errors import InputError
from planner.frameworks.imported_model import ImportedModel
from planner.frameworks.launch import Launch, Understood
from planner.frameworks.launch_args import read_launch
from planner.frameworks.megatron.read import read_settings
from planner.frameworks.megatron.read_model import read_model
from planner.inputs.documents import from_plain
from planner.inputs.huggingface.config import Remark
from planner.inputs.values import from_tree
from planner.problem.model import Model

NEEDED = ("--num-layers", "--hidden-size", "--num-attention-heads")

CANNOT: Mapping[str, str] = dict.fromkeys(
    (
        "--hybrid-override-pattern", "--hybrid-layer-pattern", "--is-hybrid-model",
        "--hybrid-attention-ratio", "--heterogeneous-layers-config-path",
        "--heterogeneous-layers-config-encoded-json", "--moe-latent-size", "--window-size",
        "--window-attn-skip-freq", "--linear-attention-freq", "--experimental-attention-variant",
        "--encoder-num-layers", "--decoder-num-layers", "--retro-add-retriever", "--spec",
        "--softmax-type",
    ),
    "is not read from arguments: write that part of the model file by hand",
)  # fmt: skip
"""Arguments that change the model and are not read."""

PADDED = Remark(
    "vocab_size",
    "Megatron pads it to a multiple of --make-vocab-size-divisible-by times the tensor-parallel "
    "size: counted as given",
)


def megatron_model(
    text: str, path: str, name: str | None, changes: Mapping[str, str],
    variables: Mapping[str, str],
) -> ImportedModel:  # fmt: skip
    """The model of a script or file of arguments; `changes` are dotted keys to YAML text.

    Raises:
        InputError: not Megatron's, a size missing, or an argument that is not read.
    """
    launch = read_launch(text, path, None, variables)
    if launch.target != "megatron":
        raise InputError(
            f"is {launch.target}'s, which gives no dimensions of a model", path=path,
            allowed="a config.json of Hugging Face, or arguments of Megatron-LM",
        )  # fmt: skip
    _refuse(launch)
    found, read = read_settings(launch)
    said = {"name": name or PurePath(path).stem or "model", "source": _source(path)}
    base = _base(launch, changes)
    read_model(launch, base, found, read)
    document = said | _nested(found)
    if "vocab_size" in changes:
        document.pop("vocab_size", None)
    tree = from_plain(document, path)
    try:
        model = from_tree(tree, Model, changes)
    except InputError as error:
        raise _placed(error, launch, found) from None
    otherwise = [
        Remark(note.subject.removeprefix("model."), note.text)
        for note in found.otherwise
        if note.subject.startswith("model")
    ]
    notes = {
        "defaults": (*_defaults(found), *_silent(found)),
        "approximate": (*otherwise, PADDED),
        "unknown": tuple(Remark(note.subject, note.text) for note in launch.unread),
    }
    ignored = {"training, data, layout": tuple(note.subject for note in launch.ignored)}
    return ImportedModel(model, path, "Megatron-LM arguments", notes, ignored)


def _source(path: str) -> str:
    return f"{PurePath(path).name} (Megatron-LM arguments)"


def _refuse(launch: Launch) -> None:
    for note in launch.ignored:
        if note.subject in CANNOT:
            raise InputError(
                f"{note.subject} {CANNOT[note.subject]}", path=launch.path, line=note.line,
                key=note.subject, allowed="arguments of models whose layers are alike",
            )  # fmt: skip


def _base(launch: Launch, changes: Mapping[str, str]) -> Model:
    """What says the sizes that every other default follows.

    Raises:
        InputError: one of them is not given.
    """
    sizes: dict[str, int] = {}
    for flag in (*NEEDED, "--vocab-size"):
        key = flag.removeprefix("--").replace("-", "_")
        value = launch.whole(flag)
        if value is None and key not in changes:
            raise InputError(
                "this argument is missing", path=launch.path, key=flag,
                allowed=f"an integer in the script, or --set {key}=N",
            )  # fmt: skip
        sizes[key] = value or 1
    layers, hidden = sizes["num_layers"], sizes["hidden_size"]
    heads = sizes["num_attention_heads"]
    return Model(
        name="arguments", source="arguments", num_layers=layers, hidden_size=hidden,
        ffn_hidden_size=4 * hidden, num_attention_heads=heads, head_dim=max(hidden // heads, 1),
        vocab_size=sizes["vocab_size"], gated_mlp=False, tied_embeddings=True, norm="layernorm",
    )  # fmt: skip


def _nested(found: Understood) -> dict[str, Any]:
    """Keys of the model as a document; what is none is left out."""
    document: dict[str, Any] = {}
    for key, value in found.model.items():
        if value is None or value == ():
            continue
        *around, last = key.split(".")
        owner = document
        for part in around:
            owner = owner.setdefault(part, {})
        owner[last] = value
    return document


def _defaults(found: Understood) -> list[Remark]:
    """What Megatron does about the model where the arguments are silent."""
    return [
        Remark(note.subject.removeprefix("model."), note.text)
        for note in found.defaults
        if note.subject.startswith("model.")
    ]


def _silent(found: Understood) -> list[Remark]:
    """Keys that no argument says."""
    said = {said.key for said in found.said}
    return [
        Remark(key, f"{value if not isinstance(value, bool) else str(value).lower()}, Megatron's "
               "default")
        for key, value in found.model.items()
        if f"model.{key}" not in said and value not in (None, 0, ())
    ]  # fmt: skip


def _placed(error: InputError, launch: Launch, found: Understood) -> InputError:
    """The error at the argument that says the key."""
    said = next((said for said in found.said if said.key == f"model.{error.key}"), None)
    if said is None:
        return error
    return InputError(
        error.message, path=launch.path, line=said.line, key=said.setting, value=error.value,
        allowed=error.allowed, nearest=error.nearest,
    )  # fmt: skip
