"""Words of a shell script after expansion, and how pieces of text become words."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a command: its text and line; `why` it is not known, if so.

    overridable: the environment may give another value (`${NODES:-8}`). known: characters of the
    text before the first that is unknown.
    """

    text: str
    line: int
    why: str | None = None
    overridable: bool = False
    known: int = 0
    pieces: tuple[Piece, ...] = field(default=(), repr=False, compare=False)

    @property
    def prefix(self) -> str:
        """The start of the text, as far as it is known."""
        return self.text if self.why is None else self.text[: self.known]


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of a value. opaque: not even its text is known."""

    text: str
    line: int
    why: str | None = None
    opaque: bool = False
    overridable: bool = False


Value = tuple[Piece, ...]


class WordBuilder:
    """Words while they are put together."""

    def __init__(self, line: int) -> None:
        self.line = line
        self.words: list[Word] = []
        self.current: list[Piece] | None = None

    def add(self, pieces: Iterable[Piece]) -> None:
        """Add text that stays in the current word."""
        if self.current is None:
            self.current = []
        self.current += pieces

    def add_split(self, pieces: Iterable[Piece]) -> None:
        """Add text that blanks cut into words."""
        for piece in pieces:
            if piece.opaque:
                self.add([piece])
                continue
            for text in re.findall(r"[ \t\n]+|[^ \t\n]+", piece.text):
                if text[0] in " \t\n":
                    self.close()
                else:
                    self.add([replace(piece, text=text)])

    def add_elements(self, words: list[Word]) -> None:
        """Add elements of a quoted array: the first goes on the current word."""
        for i, word in enumerate(words):
            if i:
                self.close()
            self.add([Piece(word.text, word.line, word.why, overridable=word.overridable)])

    def close(self) -> None:
        """End the current word, if there is one."""
        if self.current is None:
            return
        pieces, self.current = self.current, None
        text = "".join(piece.text for piece in pieces)
        why = next((piece.why for piece in pieces if piece.why), None)
        known = 0
        for piece in pieces:
            if piece.why:
                break
            known += len(piece.text)
        line = next((piece.line for piece in pieces if piece.text), self.line)
        overridable = any(piece.overridable for piece in pieces)
        self.words.append(Word(text, line, why, overridable, known, tuple(pieces)))

    def finished(self) -> list[Word]:
        """End the current word; return all."""
        self.close()
        return self.words
