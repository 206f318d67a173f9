"""The keys of one `config.json`, read strictly, with a record of which were read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from planner.errors import InputError
from planner.inputs.documents import Node, Scalar, show

MOST = 10**12
"""The greatest size that is read: greater ones are slips."""

Content = Scalar | tuple[Node, ...] | Mapping[str, Node]
Default = int | bool | float | str | None


@dataclass(frozen=True, slots=True)
class Remark:
    """Something said about a file: the key it is about, and a sentence."""

    key: str
    text: str


class Config:
    """A `config.json`: its values by key, where null counts as absent, as in transformers."""

    def __init__(self, root: Node) -> None:
        assert isinstance(root.value, Mapping)
        self.root = root
        self.values: Mapping[str, Node] = root.value
        self.used: set[str] = set()
        self.defaults: list[Remark] = []

    def node(self, *keys: str) -> Node | None:
        """The value of the first of these names of one thing; they must agree.

        Raises:
            InputError: two of them differ.
        """
        self.used.update(keys)
        found = [self.values[key] for key in keys if key in self.values]
        found = [node for node in found if node.value is not None]
        for other in found[1:]:
            if other.plain() != found[0].plain():
                raise self.error(
                    other, f"{show(other.plain())} contradicts {found[0].key} "
                    f"{show(found[0].plain())}", f"{found[0].key} and {other.key} alike",
                )  # fmt: skip
        return found[0] if found else None

    def whole(self, *keys: str, default: Default | Callable[[Config], Node | int] = None,
              least: int = 1) -> Node:  # fmt: skip
        """An integer; one that is absent has transformers' default, if there is one.

        Raises:
            InputError: absent without a default, no integer, or below `least`.
        """
        node = self.node(*keys)
        if node is None:
            if default is None:
                raise self.missing(keys[0], f"an integer >= {least}")
            if not callable(default):
                self.defaults.append(Remark(keys[0], f"{default}, transformers' default"))
                return self.made(default, keys[0])
            made = default(self)
            value = made.value if isinstance(made, Node) else made
            why = f" ({made.key})" if isinstance(made, Node) and made.key else ""
            self.defaults.append(Remark(keys[0], f"{value}{why}, transformers' default"))
            return self.made(value, keys[0])
        value = node.value
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(node, f"{show(node.plain())} is not an integer",
                             f"an integer >= {least}")  # fmt: skip
        if value < least:
            what = "is negative" if value < 0 else "is too small"
            raise self.error(node, f"{value} {what}", f"an integer >= {least}")
        if value > MOST:
            raise self.error(node, f"{show(value)} is too large", f"an integer <= {MOST}")
        return node

    def number(self, *keys: str, default: float = 0.0) -> float:
        """A number >= 0.

        Raises:
            InputError: no number, or a negative one.
        """
        node = self.node(*keys)
        if node is None:
            return default
        value = node.value
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
            raise self.error(node, f"{show(node.plain())} is no such number", "a number >= 0")
        return float(value)

    def flag(self, key: str, default: bool = False) -> bool:
        """True or false.

        Raises:
            InputError: neither.
        """
        node = self.node(key)
        if node is None:
            if default or key == "tie_word_embeddings":
                self.defaults.append(Remark(key, f"{show(default)}, transformers' default"))
            return default
        if not isinstance(node.value, bool):
            raise self.error(node, f"{show(node.plain())} is not true or false", "true, false")
        return node.value

    def text(self, key: str) -> str | None:
        """Text, or None.

        Raises:
            InputError: something else.
        """
        node = self.node(key)
        if node is not None and not isinstance(node.value, str):
            raise self.error(node, f"{show(node.plain())} is not text", "text")
        return None if node is None else str(node.value)

    def items(self, key: str, kind: type[int] | type[str]) -> tuple[Node, list[object]] | None:
        """A list of integers or of texts, and its place.

        Raises:
            InputError: something else.
        """
        node = self.node(key)
        if node is None:
            return None
        words = "text" if kind is str else "integers"
        if not isinstance(node.value, tuple):
            raise self.error(node, f"{show(node.plain())} is not a list", f"a list of {words}")
        for item in node.value:
            if not isinstance(item.value, kind) or isinstance(item.value, bool):
                raise self.error(
                    item, f"{show(item.plain())} is out of place", f"a list of {words}"
                )
        return node, [item.value for item in node.value]

    def made(self, value: Content, key: str) -> Node:
        """A value that the file does not have, placed where its key stands or would stand."""
        near = self.values.get(key, self.root)
        return replace(near, value=value, key=key)

    def error(
        self, node: Node, message: str, allowed: str, nearest: str | None = None
    ) -> InputError:
        """An error at a part of the file."""
        return InputError(
            message, path=node.path, line=node.line, column=node.column, key=node.key or None,
            value=node.plain(), allowed=allowed, nearest=nearest,
        )  # fmt: skip

    def missing(self, key: str, allowed: str) -> InputError:
        """That a key which nothing stands in for is absent."""
        around = f"{self.root.key}." if self.root.key else ""
        return InputError(
            "this key is missing", path=self.root.path, key=f"{around}{key}", allowed=allowed
        )
