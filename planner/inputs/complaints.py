"""What a validation error says: where it stands, what is wrong, what is allowed, what is near.

Fields say in words what they take: plain types by themselves, other annotations by a `Described`
among their metadata. pydantic's first error is turned into one of ours at its place in the file.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache, reduce
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, core_schema

from planner.errors import InputError, nearest_of
from planner.inputs.documents import Node, join_key, show

_Location = tuple[str | int, ...]


class Described:
    """Base of annotations that say in words what a field takes."""

    @property
    def allowed(self) -> str:
        """What the field takes, as in 'allowed: ...'."""
        raise NotImplementedError


class Parsed(Described):
    """Base of annotations that check a field's value themselves: `read` in, `write` out."""

    def read(self, value: object) -> Any:
        """Return the checked value of what stands in a file.

        Raises:
            InputError: it is not allowed.
        """
        raise NotImplementedError

    def write(self, value: Any) -> object:
        """Return what stands for the value in a document."""
        return value

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(
            self.read,
            serialization=core_schema.plain_serializer_function_ser_schema(self.write),
        )


# ---------------------------------------------------------------- annotations in words


def marks_of(annotation: Any) -> tuple[Any, ...]:
    """Return the metadata of an annotation, also of each type of `X | None`."""
    if get_origin(annotation) is Annotated:
        return tuple(annotation.__metadata__) + marks_of(annotation.__origin__)
    if get_origin(annotation) in (Union, UnionType):
        return tuple(mark for choice in get_args(annotation) for mark in marks_of(choice))
    return ()


def _bare(annotation: Any) -> Any:
    """Return an annotation without metadata and without `| None`."""
    if get_origin(annotation) is Annotated:
        return _bare(annotation.__origin__)
    if get_origin(annotation) in (Union, UnionType):
        choices = [choice for choice in get_args(annotation) if choice is not type(None)]
        return _bare(choices[0])
    return annotation


@cache
def _fields(model_cls: type[BaseModel]) -> dict[str, Any]:
    """Return the annotation, metadata included, of every YAML key of a class."""
    return {
        field.alias or name: Annotated[field.annotation, *field.metadata]
        if field.metadata
        else field.annotation
        for name, field in model_cls.model_fields.items()
    }


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def inner(annotation: Any, key: str | int) -> Any:
    """Return the annotation of what stands under a key or position; None where nothing may."""
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
    """Return the bounds among the marks in words; of several upper ones, the lowest."""
    lower = [f">= {mark.ge}" for mark in marks if isinstance(mark, Ge)]
    lower += [f"> {mark.gt}" for mark in marks if isinstance(mark, Gt)]
    upper: dict[Any, str] = {mark.le: "<=" for mark in marks if isinstance(mark, Le)}
    upper |= {mark.lt: "<" for mark in marks if isinstance(mark, Lt)}
    lowest = min(upper, default=None)
    return lower if lowest is None else [*lower, f"{upper[lowest]} {number_text(lowest)}"]


def number_text(number: Any) -> str:
    """Return a number for messages; a million and higher powers of ten as 10^6, 10^9 ..."""
    text = str(number)
    zeros = len(text) - 1
    return f"10^{zeros}" if zeros >= 6 and text == "1" + "0" * zeros else text


# ---------------------------------------------------------------- errors with places


def input_error(error: ValidationError, root: Node, model_cls: type[BaseModel]) -> InputError:
    """Return the first problem that pydantic reports, at its place in the tree `root`.

    A misspelt key comes before the missing key that it stands for.
    """
    details = error.errors(include_url=False)
    details = [detail for detail in details if detail["type"] != "default_factory_not_called"]
    detail = min(details, key=lambda detail: detail["type"] != "extra_forbidden")
    cause = detail.get("ctx", {}).get("error")
    location: _Location = detail["loc"]
    if isinstance(cause, InputError) and cause.key:
        location += tuple(cause.key.split("."))
    problem = cause if isinstance(cause, InputError) else _problem(detail, model_cls)
    # pydantic marks a wrong key of a dict by one more part of the location
    node, key = _node_at(root, tuple(part for part in location if part != "[key]"))
    return problem.located(replace(node.place, key=key))


def _node_at(root: Node, location: _Location) -> tuple[Node, str | None]:
    """Return the node at a location, or the nearest around it, and the dotted key in its file."""
    node = root
    for position, part in enumerate(location):
        child = node.child(part)
        if child is None:
            if isinstance(node.value, BaseModel):  # made before, so it has no nodes of its own
                return node, reduce(join_key, location[position:], node.key)
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
    error_type, value = detail["type"], detail["input"]
    if error_type == "extra_forbidden" or is_key:
        reason = _not_planned(parent, str(last))
        problem = unknown_key(str(last), value, _keys(parent))
        if reason is None:
            return problem
        return InputError(reason, value=value, allowed=problem.allowed)
    annotation = inner(parent, last)
    allowed = describe(annotation) if annotation else detail["msg"]
    if error_type == "missing":
        return InputError("this key is missing", allowed=allowed)
    choices = get_args(_bare(annotation)) if get_origin(_bare(annotation)) is Literal else ()
    near = nearest_of(value, map(str, choices)) if isinstance(value, str) else None
    return InputError(_reason(error_type, value), value=value, allowed=allowed, nearest=near)


def unknown_key(key: str, value: object, keys: Iterable[str]) -> InputError:
    """Return the error that a mapping has a key that is not among `keys`."""
    known = list(keys)
    return InputError(
        "unknown key",
        key=key,
        value=value,
        allowed=f"the keys {', '.join(known)}",
        nearest=nearest_of(key, known),
    )


def _not_planned(parent: Any, key: str) -> str | None:
    """Return why what a key asks for is not planned, if its class says so of one of its words."""
    reasons: Mapping[str, str] = getattr(_bare(parent), "not_planned", {})
    words = re.split(r"[\W_]+", key.casefold())

    def is_in(beginning: str) -> bool:
        # short ones begin other words too: sft, misspelt software
        return beginning in words or (
            len(beginning) > 3 and any(word.startswith(beginning) for word in words)
        )

    return next((reason for beginning, reason in reasons.items() if is_in(beginning)), None)


def _keys(parent: Any) -> list[str]:
    bare = _bare(parent)
    if _is_model(bare):
        return list(_fields(bare))
    return [str(choice) for choice in get_args(_bare(get_args(bare)[0]))]


_WRONG_TYPE = {
    "bool_type": "is not true or false",
    "dict_type": "is not a mapping",
    "float_type": "is not a number",
    "int_from_float": "is not an integer",
    "int_type": "is not an integer",
    "model_type": "is not a mapping",
    "string_type": "is not text",
    "tuple_type": "is not a list",
}


def _reason(error_type: str, value: object) -> str:
    """Return what is wrong with a value, by pydantic's name of the error."""
    shown = show(value)
    if isinstance(value, tuple) and not value:
        return "the list is empty"
    if error_type in ("greater_than_equal", "greater_than") and isinstance(value, int | float):
        return f"{shown} is negative" if value < 0 else f"{shown} is too small"
    if error_type in ("less_than_equal", "less_than"):
        return f"{shown} is too large"
    if error_type == "literal_error":
        return f"{shown} is not known here"
    if isinstance(value, str):
        return f"{shown} is text"
    return f"{shown} {_WRONG_TYPE.get(error_type, 'does not fit here')}"
