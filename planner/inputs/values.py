"""The strict base class of values, and how documents become values.

A value is made in three steps: text becomes a tree with places (`documents`); references by name
or path are replaced by the trees of the files they name, and `--set` changes are made; the tree
is validated. So an error always points at the file, line and column where the wrong key stands.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from planner.errors import InputError, Place
from planner.inputs.complaints import Described, describe, inner, input_error, marks_of
from planner.inputs.documents import Node, from_plain, show
from planner.inputs.files import SUFFIXES, FileKind, is_file, is_path, names, read_kind, resolve
from planner.inputs.yaml_text import read_yaml

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

    @classmethod
    def of(cls, **values: Any) -> Self:
        """Return the value with these attributes, by their names or YAML keys.

        A plain call raises pydantic's own error, which no user should see: where values come from
        a file, this is called.

        Raises:
            InputError: one is missing, unknown or not allowed; its `key` is below this value.
        """
        try:
            return cls(**values)
        except ValidationError as error:
            raise input_error(error, from_plain(values), cls) from None

    def replace(self, **changes: Any) -> Self:
        """Return a validated copy with some attributes changed, by their names or YAML keys.

        Raises:
            TypeError: there is no attribute of that name.
            InputError: a new value is not allowed.
        """
        fields = type(self).model_fields
        values = {name: getattr(self, name) for name in fields}
        by_key = {field.alias: name for name, field in fields.items() if field.alias}
        changes = {by_key.get(name, name): value for name, value in changes.items()}
        unknown = [name for name in changes if name not in values]
        if unknown:
            raise TypeError(f"{type(self).__name__} has no attribute {unknown[0]!r}")
        return self.of(**(values | changes))


Overrides = Mapping[str, object]
"""Dotted keys and what replaces what stands there: YAML text, or a value that is no text."""

StrictT = TypeVar("StrictT", bound=Strict)


class Reference(Described):
    """Marks a field whose YAML value may be a shipped name or a path of the given kind.

    usual: the name that stands for an absent field, so that parts of it can be changed.
    """

    def __init__(self, kind: FileKind, usual: str | None = None) -> None:
        self.kind: FileKind = kind
        self.usual = usual

    @property
    def allowed(self) -> str:
        known = ", ".join(names(self.kind))
        others = " or of a Hugging Face config.json" if self.kind == "model" else ""
        return (
            f"a mapping, the path of a YAML file{others}, or one of the {self.kind} names {known}"
        )

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        article = "an" if self.kind[0] in "aeio" else "a"
        name = {"type": "string", "description": f"name or path of {article} {self.kind} file"}
        return {"anyOf": [name, handler(schema)]}


# ---------------------------------------------------------------- documents into values


def load(
    name_or_path: str | Path,
    kind: FileKind,
    model_cls: type[StrictT],
    overrides: Overrides | None = None,
) -> StrictT:
    """Return the value of a file.

    Args:
        overrides: dotted keys and what replaces what stands there: YAML text ('a.b' -> '8') or a
            value that is no text (8, [1, 2]).

    Raises:
        InputError: no such file, or something in it is wrong.
    """
    path = resolve(kind, name_or_path)
    changes = _changes(overrides or {})
    return value_of(inlined(read_kind(kind, path), model_cls, path.parent, changes), model_cls)


def parse(text: str, path: str, model_cls: type[StrictT]) -> StrictT:
    """Return the value of YAML or JSON text; `path` names it in errors and places references.

    Raises:
        InputError: something in it is wrong.
    """
    return from_tree(read_yaml(text, path), model_cls)


def from_document(
    document: object, path: str, model_cls: type[StrictT], overrides: Overrides | None = None
) -> StrictT:
    """Return the value of a plain mapping such as `json.load` gives; `path` as of `parse`.

    Raises:
        InputError: something in it is wrong.
    """
    return from_tree(from_plain(document, path), model_cls, overrides)


def from_tree(root: Node, model_cls: type[StrictT], overrides: Overrides | None = None) -> StrictT:
    """Return the value of a tree; overrides as of `load`.

    Raises:
        InputError: something in it is wrong.
    """
    base = Path(root.path or "").parent
    return value_of(inlined(root, model_cls, base, _changes(overrides or {})), model_cls)


def value_of(root: Node, model_cls: type[StrictT]) -> StrictT:
    """Return the value of a tree without references.

    Raises:
        InputError: something in it is wrong.
    """
    if not isinstance(root.value, Mapping):
        what = "the file is empty" if root.value is None else f"{show(root.value)} is not a mapping"
        raise root.error(what, allowed=describe(model_cls))
    try:
        return model_cls.model_validate(
            root.plain(), by_alias=True, by_name=False, context={"from_file": True}
        )
    except ValidationError as error:
        raise input_error(error, root, model_cls) from None


# ---------------------------------------------------------------- changes and references

Changes = Mapping[tuple[str, ...], Node]
"""What replaces the values under dotted keys, split at the dots."""

_NO_CHANGES: Changes = {}


def _changes(overrides: Overrides) -> Changes:
    """Keys and trees of overrides.

    Raises:
        InputError: they are no mapping of dotted keys, or a value is no YAML.
    """
    if not isinstance(overrides, Mapping) or not all(isinstance(key, str) for key in overrides):
        raise InputError(
            f"{overrides!r:.60} is no mapping of dotted keys", key="overrides", value=overrides,
            allowed='a mapping such as {"num_accelerators": 512}',
        )  # fmt: skip
    return {tuple(key.split(".")): _change(key, value) for key, value in overrides.items()}


def _change(key: str, value: object) -> Node:
    """The tree of an override; only text is read as YAML, as it comes from the command line."""
    option = f"--set {key}={value}"
    # Lines and columns in the text of an option would only confuse: they are left out.
    try:
        plain = read_yaml(value, option, key).plain() if isinstance(value, str) else value
        return from_plain(plain, option, key)
    except InputError as error:
        place = Place(option, key=error.key or key)
        raise place.error(
            error.message, value=error.value, allowed=error.allowed, nearest=error.nearest
        ) from None


def inlined(node: Node, annotation: Any, base: Path, changes: Changes = _NO_CHANGES) -> Node:
    """Return the tree with the changes made and every reference replaced by its file's tree.

    Args:
        annotation: what the tree is read as, a class or an annotated type; it says which values
            are references.
        base: the folder in which the paths of the tree are sought.

    Raises:
        InputError: a reference names no file or one that cannot be read, or a change concerns an
            item that a list does not have.
    """
    reference = next((mark for mark in marks_of(annotation) if isinstance(mark, Reference)), None)
    if reference and reference.usual is not None and node.value is None and changes:
        node = replace(node, value=reference.usual)  # changes of what a file leaves out
    if reference and isinstance(node.value, str):
        path = _referred(reference, node, node.value, base)
        node, base = read_kind(reference.kind, path), path.parent
    if isinstance(node.value, tuple):
        items = [
            _descend(child, annotation, base, changes, str(position))
            for position, child in enumerate(node.value)
        ]
        _refuse_new_items(node, changes)
        return replace(node, value=tuple(items))
    if isinstance(node.value, Mapping):
        children = dict(node.value)
    elif changes:  # the file has no mapping here: all keys are those of the changes
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


def _referred(reference: Reference, node: Node, text: str, base: Path) -> Path:
    """Return the file that the text of a node refers to; errors stand at the node."""
    # Files of other kinds, such as keys and passwords, must never be quoted in messages.
    if is_path(text) and not text.lower().endswith(SUFFIXES):
        raise node.error(
            f"{show(text)} is no YAML or JSON file",
            allowed=f"a shipped name, or a path that ends in {', '.join(SUFFIXES)}",
        )
    try:
        return resolve(reference.kind, text, base)
    except InputError as error:
        raise error.located(node.place) from None


def _descend(child: Node, annotation: Any, base: Path, changes: Changes, name: str) -> Node:
    below = {key[1:]: new for key, new in changes.items() if key[0] == name}
    replacement = below.pop((), None)
    if replacement is not None:
        child = replacement
        # what the command line names is sought in the current folder first
        is_here = isinstance(child.value, str) and is_file(Path(child.value))
        base = Path() if is_here else base
    return inlined(child, inner(annotation, name), base, below)


def _refuse_new_items(node: Node, changes: Changes) -> None:
    for (name, *_), new in changes.items():
        if node.child(name) is None:
            raise new.place.error(
                f"the list {node.key} has no item '{name}'",
                value=name,
                allowed=f"an item from 0 to {len(node.plain()) - 1}",
            )
