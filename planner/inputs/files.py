"""Finding the files that hold values, by a shipped name or by path, and reading them into trees."""

import warnings
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Literal

from planner.errors import InputError, InputWarning, UnknownNameError, nearest_of
from planner.inputs.documents import Node
from planner.inputs.huggingface.convert import convert, is_config
from planner.inputs.json_text import read_json
from planner.inputs.text import MAX_DOCUMENT_BYTES, file_text
from planner.inputs.yaml_text import read_yaml

FileKind = Literal[
    "accelerator",
    "fabric",
    "overheads",
    "topology",
    "inventory",
    "model",
    "software",
    "scenario",
    "target",
    "sweep",
]

FOLDERS: Mapping[FileKind, str] = {
    "accelerator": "topologies/accelerators",
    "fabric": "topologies/fabrics",
    "overheads": "topologies/overheads",
    "topology": "topologies",
    "inventory": "topologies/inventories",
    "model": "models",
    "software": "software",
    "scenario": "scenarios",
    "target": "frameworks/**",  # beside the code that uses them, in the package itself
    "sweep": "scenarios/sweeps",
}
"""Where the shipped files of each kind are, inside `data_root()`."""

SUFFIXES = (".yaml", ".yml", ".json")
"""Of files that hold values; a reference with one of these is a path, not a name."""

WITHOUT_FILE: Mapping[FileKind, str] = {
    "software": "; `software: fallback` is for frameworks without a profile"
}
"""What stands for anything that no file describes, by kind, as errors say it."""


# ---------------------------------------------------------------- finding


@cache
def data_root() -> Path:
    """Return the folder of topologies/, models/ ...: in the wheel, or the checkout's root."""
    package = Path(__file__).parents[1]
    packaged = package / "_data"
    return packaged if packaged.is_dir() else package.parent


def names(kind: FileKind) -> list[str]:
    """Return the names of the shipped files of a kind, sorted."""
    return sorted(_shipped(kind))


def _shipped(kind: FileKind) -> dict[str, Path]:
    """Return the shipped files of a kind by name."""
    root = Path(__file__).parents[1] if kind == "target" else data_root()
    return {path.stem: path for path in root.glob(f"{FOLDERS[kind]}/*.yaml")}


def is_path(text: str) -> bool:
    """Whether a reference is a path, not a shipped name."""
    return "/" in text or text.lower().endswith(SUFFIXES)


def resolve(kind: FileKind, name_or_path: str | Path, base: Path | None = None) -> Path:
    """Return the file of a shipped name or of a path.

    A path is relative to `base`, the folder of the referring file, if it exists there,
    otherwise to the current folder.

    Raises:
        UnknownNameError: no shipped file has that name.
        InputError: no such file.
    """
    text = str(name_or_path)
    if isinstance(name_or_path, Path) or is_path(text):
        candidates = ((base or Path()) / text, Path(text))
        file = next((path for path in candidates if is_file(path)), None)
        if file is None:
            raise _no_such_file(candidates[0])
        return file
    shipped = _shipped(kind)
    if text not in shipped:
        known = sorted(shipped)
        raise UnknownNameError(
            f"unknown {kind} '{text}'",
            value=text,
            allowed=f"the path of a YAML file, or one of the names {', '.join(known)}"
            + WITHOUT_FILE.get(kind, ""),
            nearest=nearest_of(text, known),
        )
    return shipped[text]


def here_or_shipped(path: str | Path) -> Path:
    """Return a path of the current folder, or of a shipped file if only that exists."""
    shipped = data_root() / path
    inside = shipped.is_relative_to(data_root()) and ".." not in shipped.parts
    return shipped if inside and not is_file(Path(path)) and is_file(shipped) else Path(path)


def is_file(path: Path) -> bool:
    """Whether a path is a file; one that cannot be reached or named is none."""
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name too long, a folder that may not be entered
        return False


def is_folder(path: Path) -> bool:
    """Whether a path is a folder; one that cannot be reached or named is none."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def _no_such_file(path: Path) -> InputError:
    try:
        neighbours = [file.name for file in path.parent.iterdir() if file.is_file()]
    except (OSError, ValueError):
        neighbours = []
    near = None if is_folder(path) else nearest_of(path.name, neighbours)
    return InputError(
        "is a folder, not a file" if is_folder(path) else "no such file",
        path=str(path),
        value=str(path),
        allowed="a shipped name or the path of a YAML or JSON file",
        nearest=str(path.parent / near) if near else None,
    )


# ---------------------------------------------------------------- reading


def text_of_file(path: Path) -> str:
    """Return the text of a file that holds a document.

    Raises:
        InputError: it cannot be read, is too long, or not UTF-8.
    """
    return file_text(path, "a readable file", shown=_shown(path), max_bytes=MAX_DOCUMENT_BYTES)


def _shown(path: Path) -> str:
    """Return a path as people know it: a shipped file by its path inside the data folder."""
    return str(path.relative_to(data_root())) if path.is_relative_to(data_root()) else str(path)


def read(path: Path) -> Node:
    """Return the tree of a YAML (or JSON) file; shipped files are read once.

    Raises:
        InputError: it cannot be read, or is not YAML.
    """
    return _read_shipped(path) if path.is_relative_to(data_root()) else _read(path)


@cache
def _read_shipped(path: Path) -> Node:
    return _read(path)


def _read(path: Path) -> Node:
    return read_yaml(text_of_file(path), _shown(path))


def read_kind(kind: FileKind, path: Path) -> Node:
    """Return the tree of a file of a kind: of a model also Hugging Face's `config.json`.

    Raises:
        InputError: as `read`, or a `config.json` that cannot be converted.
    """
    return _read_model(path) if kind == "model" else read(path)


def _read_model(path: Path) -> Node:
    """Return the tree of a model file; a `config.json` is converted to one.

    Keys of it that no table knows are warned of; `planner import model` reports on every key.
    """
    if path.suffix.lower() != ".json":
        return read(path)
    root = read_json(text_of_file(path), _shown(path))
    if not is_config(root):
        return root
    converted = convert(root)
    if converted.unknown:
        keys = ", ".join(converted.unknown)
        warnings.warn(f"{root.path}: not understood: {keys}", InputWarning, stacklevel=2)
    return converted.tree
