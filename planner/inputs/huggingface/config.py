"""The keys of one `config.json`, read strictly, with a record of which were read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from planner.errors import InputError
from planner.inputs.documents import Node, Scalar, show

MAX_SIZE = 10**12
"""The greatest size that is read; greater ones are slips."""

Content = Scalar | tuple[Node, ...] | Mapping[str, Node]
Default = int | bool | float | str | None


@dataclass(frozen=True, slots=True)
class Remark:
    """A sentence about a key of a file."""

    key: str
    text: str


class Config:
    """A `config.json`: its values by key, where null counts as absent, as in transformers.

    Attributes:
        root: the tree of the file, or of the part of it that describes the text model.
        values: its values by key.
        used: the keys that have been asked for.
        defaults: a remark for each default that stood in for a missing key.
    """

    def __init__(self, root: Node) -> None:
        assert isinstance(root.value, Mapping)
        self.root = root
        self.values: Mapping[str, Node] = root.value
        self.used: set[str] = set()
        self.defaults: list[Remark] = []

    def node(self, *keys: str) -> Node | None:
        """Return the value of the first of several names for the same quantity, None if absent.

        Raises:
            InputError: two of the names are given and differ.
        """
        self.used.update(keys)
        given = [self.values[key] for key in keys if key in self.values]
        given = [node for node in given if node.value is not None]
        for other in given[1:]:
            if other.plain() != given[0].plain():
                raise other.error(
                    f"{show(other.plain())} contradicts {given[0].key} {show(given[0].plain())}",
                    allowed=f"{given[0].key} and {other.key} alike",
                )
        return given[0] if given else None

    def integer(
        self,
        *keys: str,
        default: Default | Callable[[Config], Node | int] = None,
        least: int = 1,
    ) -> Node:
        """Return an integer; one that is absent has transformers' default, if there is one.

        Raises:
            InputError: absent without a default, not an integer, or out of bounds.
        """
        node = self.node(*keys)
        if node is None:
            return self._default_of(keys[0], default, least)
        value = node.value
        if isinstance(value, bool) or not isinstance(value, int):
            raise node.error(
                f"{show(node.plain())} is not an integer", allowed=f"an integer >= {least}"
            )
        if value < least:
            what = "is negative" if value < 0 else "is too small"
            raise node.error(f"{value} {what}", allowed=f"an integer >= {least}")
        if value > MAX_SIZE:
            raise node.error(f"{show(value)} is too large", allowed=f"an integer <= {MAX_SIZE}")
        return node

    def _default_of(
        self, key: str, default: Default | Callable[[Config], Node | int], least: int
    ) -> Node:
        """Return the default of a missing key, and remark on it."""
        if default is None:
            raise self.missing(key, f"an integer >= {least}")
        if not callable(default):
            value: Content = default
            origin = ""
        else:
            computed = default(self)
            value = computed.value if isinstance(computed, Node) else computed
            origin = f" ({computed.key})" if isinstance(computed, Node) and computed.key else ""
        self.defaults.append(Remark(key, f"{value}{origin}, transformers' default"))
        return self.placed(value, key)

    def number(self, *keys: str, default: float = 0.0) -> float:
        """Return a number >= 0.

        Raises:
            InputError: not a number, or a negative one.
        """
        node = self.node(*keys)
        if node is None:
            return default
        value = node.value
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
            raise node.error(f"{show(node.plain())} is no such number", allowed="a number >= 0")
        return float(value)

    def flag(self, key: str, default: bool = False) -> bool:
        """Return true or false.

        Raises:
            InputError: neither.
        """
        node = self.node(key)
        if node is None:
            if default or key == "tie_word_embeddings":
                self.defaults.append(Remark(key, f"{show(default)}, transformers' default"))
            return default
        if not isinstance(node.value, bool):
            raise node.error(f"{show(node.plain())} is not true or false", allowed="true, false")
        return node.value

    def text(self, key: str) -> str | None:
        """Return text, None if absent.

        Raises:
            InputError: something else.
        """
        node = self.node(key)
        if node is not None and not isinstance(node.value, str):
            raise node.error(f"{show(node.plain())} is not text", allowed="text")
        return None if node is None else str(node.value)

    def items(self, key: str, item_type: type[int] | type[str]) -> tuple[Node, list[object]] | None:
        """Return the node of a list and its integers or texts; None if absent.

        Raises:
            InputError: something else.
        """
        node = self.node(key)
        if node is None:
            return None
        allowed = f"a list of {'text' if item_type is str else 'integers'}"
        if not isinstance(node.value, tuple):
            raise node.error(f"{show(node.plain())} is not a list", allowed=allowed)
        for item in node.value:
            if not isinstance(item.value, item_type) or isinstance(item.value, bool):
                raise item.error(f"{show(item.plain())} is out of place", allowed=allowed)
        return node, [item.value for item in node.value]

    def placed(self, value: Content, key: str) -> Node:
        """Return a value that is not in the file, at the place where its key stands or would."""
        near = self.values.get(key, self.root)
        return replace(near, value=value, key=key)

    def missing(self, key: str, allowed: str) -> InputError:
        """Return the error that a key without a default is absent."""
        around = f"{self.root.key}." if self.root.key else ""
        return InputError(
            "this key is missing", path=self.root.path, key=f"{around}{key}", allowed=allowed
        )
