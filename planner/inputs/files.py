"""Finding and reading the files that hold values, and the strict base class of those values.

A value is read in three steps: text becomes a tree with places (`documents`); references by
name or path are replaced by the trees of the files they name; the whole is validated. So an
error always points at the file, line and column where the wrong key stands.
"""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from planner.errors import InputError, InputWarning, UnknownNameError, nearest_of
from planner.inputs.complaints import Described, describe, inner, input_error, marks_of
from planner.inputs.documents import MAX_BYTES, Node, from_plain, read_text, show
from planner.inputs.huggingface.convert import convert, is_config
from planner.inputs.json_tree import read_json
from planner.inputs.text import file_text

Kind = Literal[
    "accelerator",
    "fabric",
    "topology",
    "inventory",
    "model",
    "software",
    "scenario",
    "target",
    "sweep",
]

FOLDERS: dict[Kind, str] = {
    "accelerator": "topologies/accelerators",
    "fabric": "topologies/fabrics",
    "topology": "topologies",
    "inventory": "topologies/inventories",
    "model": "models",
    "software": "software",
    "scenario": "scenarios",
    "target": "frameworks/**",  # beside the code that uses them, in the package itself
    "sweep": "scenarios/sweeps",
}
_SUFFIXES = (".yaml", ".yml", ".json")


# ---------------------------------------------------------------- values


class Strict(BaseModel):
    """Base of every value: frozen, no unknown keys, no silent conversions, finite numbers."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        validate_default=True,
        validate_by_alias=True,
        validate_by_name=True,
    )

    # Beginnings of the words of keys that users write for what is not planned, and why it is not.
    not_planned: ClassVar[Mapping[str, str]] = {}

    def replace(self, **changes: Any) -> Self:
        """Return a validated copy with some attributes changed, by their names or YAML keys."""
        fields = type(self).model_fields
        values = {name: getattr(self, name) for name in fields}
        by_key = {field.alias: name for name, field in fields.items() if field.alias}
        changes = {by_key.get(name, name): value for name, value in changes.items()}
        unknown = [name for name in changes if name not in values]
        if unknown:
            raise TypeError(f"{type(self).__name__} has no attribute {unknown[0]!r}")
        try:
            return type(self)(**(values | changes))
        except ValidationError as error:
            raise input_error(error, from_plain(values | changes), type(self)) from None


StrictT = TypeVar("StrictT", bound=Strict)


class Reference(Described):
    """Marks a field whose YAML value may be a shipped name or a path of the given kind."""

    def __init__(self, kind: Kind) -> None:
        self.kind: Kind = kind

    @property
    def allowed(self) -> str:
        known = ", ".join(names(self.kind))
        others = " or of a Hugging Face config.json" if self.kind == "model" else ""
        return (
            f"a mapping, the path of a YAML file{others}, or one of the {self.kind} names {known}"
        )

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        name = {"type": "string", "description": f"name or path of a {self.kind} file"}
        return {"anyOf": [name, handler(schema)]}


# ---------------------------------------------------------------- finding


@cache
def data_root() -> Path:
    """Return the folder of topologies/, models/ ...: in the wheel, or the checkout's root."""
    package = Path(__file__).parents[1]
    packaged = package / "_data"
    return packaged if packaged.is_dir() else package.parent


def names(kind: Kind) -> list[str]:
    """Return the names of the shipped files of a kind, sorted."""
    return sorted(_shipped(kind))


def _shipped(kind: Kind) -> dict[str, Path]:
    """Return the shipped files of a kind by name."""
    root = Path(__file__).parents[1] if kind == "target" else data_root()
    return {path.stem: path for path in root.glob(f"{FOLDERS[kind]}/*.yaml")}


def _refuse_other_kinds(text: str) -> None:
    """A file names files of its own kind alone; no file of another makes its way into messages."""
    if _is_path(text) and not text.lower().endswith(_SUFFIXES):
        raise InputError(
            f"{show(text)} is no YAML or JSON file",
            value=text,
            allowed=f"a shipped name, or a path that ends in {', '.join(_SUFFIXES)}",
        )


def _is_path(text: str) -> bool:
    return "/" in text or text.lower().endswith(_SUFFIXES)


def resolve(kind: Kind, name_or_path: str | Path, base: Path | None = None) -> Path:
    """Return the file of a shipped name or of a path.

    A path is relative to `base`, the folder of the referring file, if it exists there,
    otherwise to the current folder.
    """
    text = str(name_or_path)
    if isinstance(name_or_path, Path) or _is_path(text):
        candidates = ((base or Path()) / text, Path(text))
        found = next((path for path in candidates if _is_file(path)), None)
        if found is None:
            raise _no_file(candidates[0])
        return found
    known = names(kind)
    if text not in known:
        raise UnknownNameError(
            f"unknown {kind} '{text}'",
            value=text,
            allowed=f"the path of a YAML file, or one of the names {', '.join(known)}",
            nearest=nearest_of(text, known),
        )
    return _shipped(kind)[text]


def here_or_shipped(path: str | Path) -> Path:
    """Return a path of the current folder, or of a shipped file that it names."""
    shipped = data_root() / path
    inside = shipped.is_relative_to(data_root()) and ".." not in shipped.parts
    return shipped if inside and not _is_file(Path(path)) and _is_file(shipped) else Path(path)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name too long, a folder that may not be entered
        return False


def is_folder(path: Path) -> bool:
    """Whether a path is a folder; one that cannot be entered or named is none."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def _no_file(path: Path) -> InputError:
    try:
        beside = [file.name for file in path.parent.iterdir() if file.is_file()]
    except (OSError, ValueError):
        beside = []
    near = None if is_folder(path) else nearest_of(path.name, beside)
    return InputError(
        "is a folder, not a file" if is_folder(path) else "no such file",
        path=str(path),
        value=str(path),
        allowed="a shipped name or the path of a YAML or JSON file",
        nearest=str(path.parent / near) if near else None,
    )


def _shown(path: Path) -> str:
    """Return a path as people know it: a shipped file by its path inside the data folder."""
    return str(path.relative_to(data_root())) if path.is_relative_to(data_root()) else str(path)


def read(path: Path) -> Node:
    """Return the tree of a file; shipped files are read once."""
    return _read_shipped(path) if path.is_relative_to(data_root()) else _read(path)


@cache
def _read_shipped(path: Path) -> Node:
    return _read(path)


def _read(path: Path) -> Node:
    return read_text(text_of_file(path), _shown(path))


def read_model(path: Path) -> Node:
    """Return the tree of a model file, also of Hugging Face's `config.json` in its place.

    Keys of that one that no table knows are warned of; `planner import model` says all of it.
    """
    if path.suffix.lower() != ".json":
        return read(path)
    root = read_json(text_of_file(path), _shown(path))
    if not is_config(root):
        return root
    found = convert(root)
    if found.unknown:
        keys = ", ".join(found.unknown)
        warnings.warn(f"{root.path}: not understood: {keys}", InputWarning, stacklevel=2)
    return found.tree


_READERS: Mapping[Kind, Callable[[Path], Node]] = {"model": read_model}


def text_of_file(path: Path) -> str:
    """Return the text of a file.

    Raises:
        InputError: it cannot be read, is too long, or not UTF-8.
    """
    return file_text(path, "a readable file", shown=_shown(path), most_bytes=MAX_BYTES)


# ---------------------------------------------------------------- reading values


def load(
    name_or_path: str | Path,
    kind: Kind,
    model_cls: type[StrictT],
    overrides: Mapping[str, str] | None = None,
) -> StrictT:
    """Return the value of a file, with some keys overridden by YAML text ('a.b' -> '8')."""
    path = resolve(kind, name_or_path)
    root = _READERS.get(kind, read)(path)
    return value_of(assembled(root, model_cls, path.parent, _changes(overrides or {})), model_cls)


def parse(text: str, path: str, model_cls: type[StrictT]) -> StrictT:
    """Return the value of YAML or JSON text; `path` names it in errors and places references."""
    return value_of(assembled(read_text(text, path), model_cls, Path(path).parent), model_cls)


def from_tree(root: Node, model_cls: type[StrictT], overrides: Mapping[str, str]) -> StrictT:
    """Return the value of a tree, with some keys overridden by YAML text ('a.b' -> '8')."""
    base = Path(root.path or "").parent
    return value_of(assembled(root, model_cls, base, _changes(overrides)), model_cls)


def from_document(document: object, path: str, model_cls: type[StrictT]) -> StrictT:
    """Return the value of a plain mapping such as `json.load` gives."""
    root = assembled(from_plain(document, path), model_cls, Path(path).parent)
    return value_of(root, model_cls)


Changes = Mapping[tuple[str, ...], Node]
"""What replaces the parts under dotted keys."""


_NO_CHANGES: Changes = {}


def _changes(overrides: Mapping[str, str]) -> Changes:
    return {
        tuple(key.split(".")): _change(key, text, f"--set {key}={text}")
        for key, text in overrides.items()
    }


def _change(key: str, text: str, option: str) -> Node:
    return from_plain(read_text(text, option, key).plain(), option, key)


def value_of(root: Node, model_cls: type[StrictT]) -> StrictT:
    """Return the value of an assembled tree."""
    if not isinstance(root.value, Mapping):
        what = "the file is empty" if root.value is None else f"{show(root.value)} is not a mapping"
        raise InputError(
            what,
            path=root.path,
            line=root.line,
            column=root.column,
            value=root.plain(),
            allowed=describe(model_cls),
        )
    try:
        return model_cls.model_validate(
            root.plain(), by_alias=True, by_name=False, context={"from_file": True}
        )
    except ValidationError as error:
        raise input_error(error, root, model_cls) from None


def assembled(node: Node, annotation: Any, base: Path, changes: Changes = _NO_CHANGES) -> Node:
    """Return the tree with the changes made and every reference replaced by its file's tree.

    base: the folder in which the paths of the tree are sought.
    """
    reference = next((mark for mark in marks_of(annotation) if isinstance(mark, Reference)), None)
    if reference and isinstance(node.value, str):
        try:
            _refuse_other_kinds(node.value)
            path = resolve(reference.kind, node.value, base)
        except InputError as error:
            raise error.located(node.path, node.line, node.column, node.key) from None
        node, base = _READERS.get(reference.kind, read)(path), path.parent
    if isinstance(node.value, tuple):
        items = [
            _descend(child, annotation, base, changes, str(position))
            for position, child in enumerate(node.value)
        ]
        _refuse_new_items(node, changes)
        return replace(node, value=tuple(items))
    if isinstance(node.value, Mapping):
        children = dict(node.value)
    elif changes:  # only the changes name parts here
        node, children = replace(next(iter(changes.values())), key=node.key), {}
    else:
        return node
    for (name, *_), new in changes.items():
        children.setdefault(name, replace(new, value=None))
    return replace(
        node,
        value={
            name: _descend(child, annotation, base, changes, name)
            for name, child in children.items()
        },
    )


def _descend(child: Node, annotation: Any, base: Path, changes: Changes, name: str) -> Node:
    below = {key[1:]: new for key, new in changes.items() if key[0] == name}
    given = below.pop((), None)
    if given is not None:
        child = given
        # what the command line names is sought in the current folder first
        base = Path() if isinstance(given.value, str) and _is_file(Path(given.value)) else base
    return assembled(child, inner(annotation, name), base, below)


def _refuse_new_items(node: Node, changes: Changes) -> None:
    for (name, *_), new in changes.items():
        if node.child(name) is None:
            raise InputError(
                f"the list {node.key} has no item '{name}'",
                path=new.path,
                key=new.key,
                value=name,
                allowed=f"an item from 0 to {len(node.plain()) - 1}",
            )
