"""Words of a shell script after expansion, and how pieces of text become words."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a command: its text and line; `why` it is not known, if so.

    outside: the environment may say otherwise (`${NODES:-8}`). known: characters of the text
    before the first that is unknown.
    """

    text: str
    line: int
    why: str | None = None
    outside: bool = False
    known: int = 0
    pieces: tuple[Piece, ...] = field(default=(), repr=False, compare=False)

    @property
    def prefix(self) -> str:
        """The part of the text that is known."""
        return self.text if self.why is None else self.text[: self.known]


@dataclass(frozen=True, slots=True)
class Piece:
    """Part of a value. opaque: not even its text is known."""

    text: str
    line: int
    why: str | None = None
    opaque: bool = False
    outside: bool = False


Value = tuple[Piece, ...]


class Fields:
    """Words while they are put together."""

    def __init__(self, line: int) -> None:
        self.line = line
        self.done: list[Word] = []
        self.now: list[Piece] | None = None

    def whole(self, pieces: Iterable[Piece]) -> None:
        """Text that stays in the present word."""
        if self.now is None:
            self.now = []
        self.now += pieces

    def split(self, pieces: Iterable[Piece]) -> None:
        """Text that blanks cut into words."""
        for piece in pieces:
            if piece.opaque:
                self.whole([piece])
                continue
            for text in re.findall(r"[ \t\n]+|[^ \t\n]+", piece.text):
                if text[0] in " \t\n":
                    self.close()
                else:
                    self.whole([replace(piece, text=text)])

    def elements(self, words: list[Word]) -> None:
        """Elements of a quoted array: the first goes on the present word."""
        for i, word in enumerate(words):
            if i:
                self.close()
            self.whole([Piece(word.text, word.line, word.why, outside=word.outside)])

    def close(self) -> None:
        if self.now is None:
            return
        pieces, self.now = self.now, None
        text = "".join(piece.text for piece in pieces)
        why = next((piece.why for piece in pieces if piece.why), None)
        known = 0
        for piece in pieces:
            if piece.why:
                break
            known += len(piece.text)
        line = next((piece.line for piece in pieces if piece.text), self.line)
        self.done.append(
            Word(text, line, why, any(p.outside for p in pieces), known, tuple(pieces))
        )

    def finished(self) -> list[Word]:
        self.close()
        return self.done
