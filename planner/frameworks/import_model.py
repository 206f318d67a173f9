"""Models from files of others: Hugging Face's `config.json`, Megatron-LM arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from planner.errors import InputError, one_paragraph
from planner.frameworks.imported_model import (
    ImportedModel,
    Stated,
    read_count,
    with_published_count,
)
from planner.frameworks.megatron.import_model import megatron_model
from planner.frameworks.read import read_launch_script
from planner.inputs.documents import Node, show
from planner.inputs.files import is_folder, text_of_file
from planner.inputs.huggingface.config import Remark
from planner.inputs.huggingface.convert import Converted, convert, is_config, refuse_non_config
from planner.inputs.json_text import read_json
from planner.inputs.values import from_tree
from planner.problem.model import Model

INDEX = "model.safetensors.index.json"
DTYPE_BYTES: Mapping[str, int] = {"float32": 4, "bfloat16": 2, "float16": 2}
FORMS = "a config.json of Hugging Face (or its folder), or arguments of Megatron-LM"


def import_model(
    paths: str | Path | Sequence[str | Path],
    *,
    name: str | None = None,
    parameters: str | float | None = None,
    changes: Mapping[str, str] | None = None,
    variables: Mapping[str, str] | None = None,
) -> ImportedModel:
    """The model that a file describes.

    paths: a `config.json`, the folder that holds it, or a script with Megatron-LM arguments; and
    perhaps the index of the checkpoint, which is also found next to a `config.json`. parameters:
    the published count, to compare with ('70.6B'). changes: dotted keys of the model to YAML text.
    variables: values of shell variables of a script.

    Raises:
        InputError: no such file, not one of these, an architecture that is not read, or a key
            that is missing, wrong, or has no place in a model file.
    """
    given = [paths] if isinstance(paths, str | Path) else list(paths)
    files = [_file(Path(path)) for path in given]
    trees = {path: _tree(path) for path in files}
    described = [path for path in files if not _is_index(trees[path])]
    indexes = [trees[path] for path in files if _is_index(trees[path])]
    if len(described) != 1 or len(indexes) > 1:
        raise InputError(
            f"{len(described)} files describe a model", key="FILE",
            value=", ".join(map(str, files)), allowed=f"{FORMS}, and at most one {INDEX}",
        )  # fmt: skip
    path = described[0]
    tree = trees[path]
    if tree is None:
        script = read_launch_script(text_of_file(path), str(path), None, variables)
        imported = megatron_model(script, name, changes or {})
        dtype, quantised = None, False
    else:
        converted = convert(tree)
        imported = _from_config(converted, str(path), name, changes or {})
        dtype, quantised = converted.dtype, converted.quantised
        if not indexes and (path.parent / INDEX).is_file():
            indexes = [_tree(path.parent / INDEX)]
    imported = _compared(imported, parameters, next(iter(indexes), None), dtype, quantised)
    return with_published_count(imported)


def _file(path: Path) -> Path:
    """A file; of a folder its `config.json`."""
    return path / "config.json" if is_folder(path) else path


def _tree(path: Path) -> Node | None:
    """The tree of a JSON file that begins a mapping; None of other texts, which may be scripts."""
    text = text_of_file(path)
    if path.suffix.lower() != ".json" and not text.lstrip().startswith("{"):
        return None
    tree = read_json(text, str(path))
    if not isinstance(tree.value, Mapping):
        raise InputError(
            f"{show(tree.plain())} is not a mapping", path=str(path), allowed=FORMS
        )  # fmt: skip
    if not is_config(tree) and not _is_index(tree):
        raise refuse_non_config(tree)
    return tree


def _is_index(tree: Node | None) -> bool:
    return tree is not None and isinstance(tree.value, Mapping) and "weight_map" in tree.value


def _from_config(
    converted: Converted, path: str, name: str | None, changes: Mapping[str, str]
) -> ImportedModel:
    tree = converted.tree
    assert isinstance(tree.value, Mapping)
    if name is not None:
        tree = replace(tree, value={**tree.value, "name": Node(name, path)})
    notes = {
        "defaults": converted.defaults,
        "approximate": converted.approximate,
        "aside": converted.aside,
        "unknown": tuple(
            Remark(key, "no table has this key: it may change the model")
            for key in converted.unknown
        ),
    }
    form = f"Hugging Face config.json, {converted.architecture}"
    model = from_tree(tree, Model, changes)
    text_only = bool(converted.aside)
    return ImportedModel(model, path, form, notes, converted.ignored, text_only=text_only)


def _compared(
    imported: ImportedModel, parameters: str | float | None, index: Node | None,
    dtype: str | None, quantised: bool,
) -> ImportedModel:  # fmt: skip
    """With the count that the caller or the checkpoint's index states."""
    if parameters is not None:
        number = read_count(parameters if isinstance(parameters, str) else f"{parameters:.0f}")
        return replace(imported, stated=Stated(number, f"--parameters {parameters}"))
    if index is None:
        return imported
    stated, why = _of_index(index, dtype, quantised)
    if stated is not None:
        return replace(imported, stated=stated)
    approximate = (*imported.notes.get("approximate", ()), Remark(INDEX, one_paragraph(why)))
    return replace(imported, notes={**imported.notes, "approximate": approximate})


def _of_index(index: Node, dtype: str | None, quantised: bool) -> tuple[Stated | None, str]:
    """The count of a checkpoint's index, or why it has none.

    Raises:
        InputError: its numbers are none.
    """
    metadata = index.child("metadata")
    for key in ("total_parameters", "total_size"):
        node = metadata.child(key) if metadata is not None else None
        if node is None:
            continue
        value = node.value
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 1:
            raise InputError(
                f"{show(node.plain())} is no count", path=node.path, line=node.line,
                column=node.column, key=node.key, value=node.plain(), allowed="a number >= 1",
            )  # fmt: skip
        if key == "total_parameters":
            return Stated(float(value), f"metadata.{key} of {INDEX}"), ""
        if quantised:
            return None, "total_size is of quantised numbers: no count of parameters"
        if dtype is None or dtype not in DTYPE_BYTES:
            return None, f"total_size is in bytes, and the configuration's dtype is {dtype}"
        each = DTYPE_BYTES[dtype]
        source = f"metadata.{key} of {INDEX} over {each} bytes of {dtype}"
        return Stated(float(value) / each, source), ""
    return None, "metadata has neither total_parameters nor total_size"
