"""A `config.json` as the tree of a model file, whose values stand where the config's keys do."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import PurePath

from planner.errors import InputError, nearest_of
from planner.inputs.documents import Node, show
from planner.inputs.huggingface.config import Config, Remark
from planner.inputs.huggingface.families import BY_TYPE, Family
from planner.inputs.huggingface.keys import APPROXIMATED, OTHERS, REASONS, REFUSED

TEXT = "text_config"
"""The key of the text model in the configuration of a model of more than text."""

MARKS = ("model_type", "architectures", TEXT)
"""Keys by which a `config.json` is told from other files."""


@dataclass(frozen=True, slots=True)
class Converted:
    """The tree of a model file, and what there is to say about the conversion.

    Attributes:
        tree: the model file.
        architecture: the `model_type`.
        defaults: keys that the file leaves out.
        approximate: keys that are costed roughly.
        aside: keys of other parts of a model of more than text.
        ignored: keys that change nothing, by the reason.
        unknown: keys that no table has.
        dtype: of the checkpoint's numbers.
        quantised: whether the checkpoint is.
    """

    tree: Node
    architecture: str
    defaults: tuple[Remark, ...]
    approximate: tuple[Remark, ...]
    aside: tuple[Remark, ...]
    ignored: Mapping[str, tuple[str, ...]]
    unknown: tuple[str, ...]
    dtype: str | None
    quantised: bool


def is_config(root: Node) -> bool:
    """Whether a document is a `config.json` of Hugging Face."""
    return isinstance(root.value, Mapping) and any(mark in root.value for mark in MARKS)


def convert(root: Node) -> Converted:
    """Return the model file that a `config.json` stands for.

    Raises:
        InputError: an architecture that is not read, a key missing or of the wrong type, or
            something that a model file cannot express; with the place in the file.
    """
    outer = Config(root)
    inner, aside = _text_part(outer)
    config = Config(inner)
    family, name = _family(config)
    for key, why in REFUSED.items():
        if config.flag(key):
            raise config.values[key].error(why, allowed="false")
    model: dict[str, object] = {key: maker(config) for key, maker in family.keys.items()}
    for maker in family.several:
        model |= maker(config)
    model = {"name": _name(outer, name), **model, "source": _source(outer, config, name)}
    approximate = [Remark(key, text) for key, text in (family.remarks or {}).items()]
    for key, (matters, text) in APPROXIMATED.items():
        if key in config.values and matters(config.values[key].plain()):
            approximate.append(Remark(key, text))
    approximate += _head(config, family)
    rest = [key for key in config.values if key not in config.used and key not in APPROXIMATED]
    ignored: dict[str, tuple[str, ...]] = {}
    for key in rest:
        if key in REASONS:
            ignored[REASONS[key]] = (*ignored.get(REASONS[key], ()), key)
    return Converted(
        tree=_tree(model, config),
        architecture=name,
        defaults=tuple(dict.fromkeys(config.defaults)),
        approximate=tuple(approximate),
        aside=tuple(aside),
        ignored=ignored,
        unknown=tuple(key for key in rest if key not in REASONS),
        dtype=_dtype(config) or _dtype(outer),
        quantised=any("quantization_config" in part.values for part in (outer, config)),
    )


def _text_part(outer: Config) -> tuple[Node, list[Remark]]:
    """Return the text model of a configuration, and what is left aside where that is of more."""
    node = outer.values.get(TEXT)
    if node is None:
        return outer.root, []
    if not isinstance(node.value, Mapping):
        raise node.error(f"{show(node.plain())} is not a mapping", allowed="a mapping of keys")
    values = dict(node.value)
    for key in ("tie_word_embeddings", "quantization_config", "architectures"):
        if key in outer.values:
            values.setdefault(key, outer.values[key])
    others = [
        key for key in outer.values if key != TEXT and key not in values and key not in REASONS
    ]
    remark = Remark(TEXT, "only the text model is taken; left aside: " + (", ".join(others) or "–"))
    return replace(node, value=values), [remark]


def _family(config: Config) -> tuple[Family, str]:
    """Return the table of the architecture, and its name.

    Raises:
        InputError: none is named, or one that is not read.
    """
    name = config.text("model_type")
    known = ", ".join(BY_TYPE)
    if name is None:
        raise config.missing("model_type", f"the architecture: {known}")
    # a text model's own file says `..._text`; that of a model of more may leave it out
    if name not in BY_TYPE and f"{name}_text" in BY_TYPE:
        name = f"{name}_text"
    if name not in BY_TYPE:
        why = OTHERS.get(name, "no table says what its keys mean; write the dimensions by hand")
        raise config.values["model_type"].error(
            f"architecture {show(name)} is not read: {why} (docs/models.md)",
            allowed=known,
            nearest=None if name in OTHERS else nearest_of(name, BY_TYPE),
        )
    return BY_TYPE[name], name


def _head(config: Config, family: Family) -> list[Remark]:
    """Return remarks on classes that are not the language model of the architecture."""
    listed = config.items("architectures", str)
    heads = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")
    return [
        Remark("architectures", f"{name} is planned as a language model with its LM head")
        for name in ([] if listed is None else listed[1])
        if isinstance(name, str) and not (name.startswith(family.classes) and name.endswith(heads))
    ]


def _dtype(config: Config) -> str | None:
    return config.text("dtype") or config.text("torch_dtype")


def _checkpoint(outer: Config) -> str:
    """Return the name of the checkpoint that a file gives itself; '' without."""
    name = outer.values.get("_name_or_path")
    text = name.value if name is not None and isinstance(name.value, str) else ""
    return "" if text.startswith((".", "/", "~")) or "\\" in text else text.strip()


def _name(outer: Config, architecture: str) -> str:
    """Return a name made of the checkpoint's, the folder's or the file's."""
    path = PurePath(outer.root.path or "")
    around = path.parent.name if path.stem == "config" else path.stem
    checkpoint = _checkpoint(outer).rpartition("/")[2]
    words = re.findall(r"[a-z0-9.]+", (checkpoint or around).lower())
    return "-".join(word.strip(".") for word in words if word.strip(".")) or architecture


def _source(outer: Config, config: Config, architecture: str) -> str:
    path = PurePath(outer.root.path or "config.json")
    of = f" of {_checkpoint(outer)}" if _checkpoint(outer) else ""
    part = f", {TEXT}" if config.root is not outer.root else ""
    return f"{path.name}{of} (Hugging Face, {architecture}{part})"


def _tree(values: Mapping[str, object], config: Config) -> Node:
    """Return the makers' results as a tree, without those that are None."""
    children = {}
    for key, value in values.items():
        if isinstance(value, Node):
            children[key] = value
        elif isinstance(value, Mapping):
            children[key] = _tree(value, config)
        elif value is not None:
            assert isinstance(value, int | bool | str)
            children[key] = config.placed(value, key)
    return replace(config.root, value=children)


def refuse_non_config(root: Node) -> InputError:
    """Return the error that a JSON file is no `config.json`."""
    return InputError(
        "is no config.json: it has no model_type", path=root.path, line=root.line,
        key="model_type", allowed=", ".join(BY_TYPE),
    )  # fmt: skip
