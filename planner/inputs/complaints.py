"""What a validation error says: where it stands, what is wrong, what is allowed, what is near."""

import dataclasses
import re
from collections.abc import Iterable, Mapping
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from planner.errors import InputError, nearest_of
from planner.inputs.documents import Node, join_key, show

_Location = tuple[str | int, ...]


class Described:
    """Base of annotations that say in words what a field takes."""

    @property
    def allowed(self) -> str:
        raise NotImplementedError


# ---------------------------------------------------------------- annotations in words


def marks_of(annotation: Any) -> tuple[Any, ...]:
    """Return the marks of an annotation, also of `X | None`."""
    if get_origin(annotation) is Annotated:
        return tuple(annotation.__metadata__) + marks_of(annotation.__origin__)
    if get_origin(annotation) in (Union, UnionType):
        return tuple(mark for arm in get_args(annotation) for mark in marks_of(arm))
    return ()


def _bare(annotation: Any) -> Any:
    """Return an annotation without marks and without `| None`."""
    if get_origin(annotation) is Annotated:
        return _bare(annotation.__origin__)
    if get_origin(annotation) in (Union, UnionType):
        arms = [arm for arm in get_args(annotation) if arm is not type(None)]
        return _bare(arms[0])
    return annotation


@cache
def _fields(model_cls: type[BaseModel]) -> dict[str, Any]:
    """Return the annotation, marks included, of every YAML key of a class."""
    return {
        field.alias or name: Annotated[field.annotation, *field.metadata]
        if field.metadata
        else field.annotation
        for name, field in model_cls.model_fields.items()
    }


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def inner(annotation: Any, key: str | int) -> Any:
    """Return the annotation of the part under a key, or None where there is none."""
    bare = _bare(annotation)
    if _is_model(bare):
        field = bare.model_fields.get(str(key))
        return _fields(bare).get(field.alias if field and field.alias else str(key))
    if get_origin(bare) is tuple:
        return get_args(bare)[0]
    if get_origin(bare) is dict:
        return get_args(bare)[1]
    return None


def describe(annotation: Any) -> str:
    """Return in words what an annotation takes."""
    marks = marks_of(annotation)
    described = next((mark for mark in marks if isinstance(mark, Described)), None)
    if described:
        return described.allowed
    bare = _bare(annotation)
    if _is_model(bare):
        return f"a mapping with the keys {', '.join(_fields(bare))}"
    if get_origin(bare) is Literal:
        return ", ".join(str(choice) for choice in get_args(bare))
    if get_origin(bare) is tuple:
        return f"a list of one or more of: {describe(get_args(bare)[0])}"
    if get_origin(bare) is dict:
        return f"a mapping with keys among: {describe(get_args(bare)[0])}"
    if bare in (int, float):
        noun = "an integer" if bare is int else "a number"
        return f"{noun} {' and '.join(_bounds(marks))}".strip()
    return {bool: "true or false", str: "text"}.get(bare, "another value")


def _bounds(marks: Iterable[Any]) -> list[str]:
    words = {Ge: (">=", "ge"), Gt: (">", "gt"), Le: ("<=", "le"), Lt: ("<", "lt")}
    return [
        f"{words[type(mark)][0]} {getattr(mark, words[type(mark)][1])}"
        for mark in marks
        if type(mark) in words
    ]


# ---------------------------------------------------------------- errors with places


def input_error(error: ValidationError, root: Node, model_cls: type[BaseModel]) -> InputError:
    """Return the first problem pydantic found, a misspelt key before the key it stands for."""
    details = error.errors(include_url=False)
    details = [detail for detail in details if detail["type"] != "default_factory_not_called"]
    detail = min(details, key=lambda detail: detail["type"] != "extra_forbidden")
    cause = detail.get("ctx", {}).get("error")
    location: _Location = detail["loc"]
    if isinstance(cause, InputError) and cause.key:
        location += tuple(cause.key.split("."))
    problem = cause if isinstance(cause, InputError) else _problem(detail, model_cls)
    node, key = _place(root, tuple(part for part in location if part != "[key]"))
    return problem.located(dataclasses.replace(node.place, key=key))


def _place(root: Node, location: _Location) -> tuple[Node, str | None]:
    """Return the part at a location (or the nearest around it) and the dotted key in its file."""
    node = root
    for position, part in enumerate(location):
        child = node.child(part)
        if child is None:
            last = position == len(location) - 1 and isinstance(node.value, Mapping)
            return node, join_key(node.key, part) if last else node.key or None
        node = child
    return node, node.key or None


def _problem(detail: ErrorDetails, model_cls: type[BaseModel]) -> InputError:
    """Return one pydantic error in words, without its place."""
    is_key = "[key]" in detail["loc"]
    *around, last = [part for part in detail["loc"] if part != "[key]"] or [""]
    parent: Any = model_cls
    for part in around:
        parent = inner(parent, part)
    kind, value = detail["type"], detail["input"]
    if kind == "extra_forbidden" or is_key:
        keys = _keys(parent)
        reason = _not_planned(parent, str(last))
        return InputError(
            reason or "unknown key",
            value=value,
            allowed=f"the keys {', '.join(keys)}",
            nearest=None if reason else nearest_of(str(last), keys),
        )
    annotation = inner(parent, last)
    allowed = describe(annotation) if annotation else detail["msg"]
    if kind == "missing":
        return InputError("this key is missing", allowed=allowed)
    choices = get_args(_bare(annotation)) if get_origin(_bare(annotation)) is Literal else ()
    near = nearest_of(value, map(str, choices)) if isinstance(value, str) else None
    return InputError(_reason(kind, value), value=value, allowed=allowed, nearest=near)


def _not_planned(parent: Any, key: str) -> str | None:
    """Return why what a key asks for is not planned, if its class says so of one of its words."""
    reasons: Mapping[str, str] = getattr(_bare(parent), "not_planned", {})
    words = re.split(r"[\W_]+", key.casefold())

    def meant(start: str) -> bool:
        # short ones begin other words too: sft, misspelt software
        return start in words or (len(start) > 3 and any(w.startswith(start) for w in words))

    return next((reason for start, reason in reasons.items() if meant(start)), None)


def _keys(parent: Any) -> list[str]:
    bare = _bare(parent)
    if _is_model(bare):
        return list(_fields(bare))
    return [str(choice) for choice in get_args(_bare(get_args(bare)[0]))]


def _reason(kind: str, value: object) -> str:
    shown = show(value)
    if isinstance(value, tuple) and not value:
        return "the list is empty"
    if kind in ("greater_than_equal", "greater_than") and isinstance(value, int | float):
        return f"{shown} is negative" if value < 0 else f"{shown} is too small"
    if kind in ("less_than_equal", "less_than"):
        return f"{shown} is too large"
    if kind == "literal_error":
        return f"{shown} is not known here"
    if isinstance(value, str):
        return f"{shown} is text"
    return f"{shown} does not fit here"
