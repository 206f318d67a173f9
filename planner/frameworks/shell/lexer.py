"""Shell text into commands of unexpanded words: an exact reader of what launch scripts use.

Nothing is executed. What is read exactly: words, quotes, escapes, continued lines, comments,
`NAME=value`, `NAME=(…)`, `NAME+=…`, `$NAME`, `${NAME}`, `${NAME:-default}`, `${NAME[@]}`, and where
commands begin and end. Everything else (command substitution, arithmetic, patterns) is one part
that says what it is; the words around it stay readable.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\[[^\]]*\])?(\+?)=")
OPERATORS = (*["&&", "||", ";;", "&>", ">>", "<<<", "<<", ">&", "<&"], *";&|()><")
HEREDOC = re.compile(r"-?[ \t]*(['\"\\]?)([A-Za-z_][A-Za-z0-9_]*)\1?")
DEEPEST = 24
"""Expansions inside expansions; deeper ones are not read."""


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a word. kind: text, variable (`name`, with `op` and the parts of its default),
    array (`name`, `op` "*" where it is joined), odd (not read; `text` as written, `why`)."""

    kind: str
    text: str
    line: int
    quoted: bool = False
    name: str = ""
    op: str = ""
    default: tuple[Part, ...] = ()
    why: str = ""


@dataclass(frozen=True, slots=True)
class RawWord:
    """A word before expansion."""

    parts: tuple[Part, ...]
    line: int

    @property
    def plain(self) -> str | None:
        """Its text where nothing in it expands or is quoted."""
        if all(part.kind == "text" and not part.quoted for part in self.parts):
            return "".join(part.text for part in self.parts)
        return None


@dataclass(frozen=True, slots=True)
class ArrayAssignment:
    """`NAME=(words)` or `NAME+=(words)`."""

    name: str
    append: bool
    words: tuple[RawWord, ...]
    line: int


@dataclass(frozen=True, slots=True)
class Operator:
    """What ends a command, or a redirection."""

    text: str
    line: int


Token = RawWord | ArrayAssignment | Operator


class Lexer:
    """One pass over the text."""

    def __init__(self, text: str, line: int = 1) -> None:
        self.text = text
        self.at = 0
        self.line = line
        self.heredocs: list[str] = []
        self.skipped: list[tuple[int, str]] = []  # bodies of here-documents, with their lines

    def peek(self, ahead: int = 0) -> str:
        place = self.at + ahead
        return self.text[place] if place < len(self.text) else ""

    def take(self, count: int = 1) -> str:
        taken = self.text[self.at : self.at + count]
        self.at += len(taken)
        self.line += taken.count("\n")
        return taken

    def tokens(self) -> Iterator[Token]:
        """Tokens in order; a new line is the operator of that text."""
        while self.at < len(self.text):
            char = self.peek()
            if char == "\n":
                yield Operator(self.take(), self.line - 1)
                self._skip_heredocs()
            elif char in " \t\r":
                self.take()
            elif char == "\\" and self.peek(1) == "\n":
                self.take(2)
            elif char == "#":
                self.take(self._to("\n"))
            elif (char, self.peek(1)) == ("(", "("):
                yield self._arithmetic_command()
            elif operator := self._operator():
                yield operator
            else:
                yield self._word_or_array()

    def _to(self, end: str) -> int:
        place = self.text.find(end, self.at)
        return (len(self.text) if place < 0 else place) - self.at

    def _operator(self) -> Operator | None:
        for text in OPERATORS:
            if self.text.startswith(text, self.at):
                operator = Operator(text, self.line)
                self.take(len(text))
                if text == "<<":
                    self._heredoc()
                return operator
        return None

    def _heredoc(self) -> None:
        found = HEREDOC.match(self.text, self.at)
        if found:
            self.heredocs.append(found[2])

    def _skip_heredocs(self) -> None:
        for end in self.heredocs:
            start, body = self.line, []
            while self.at < len(self.text):
                line = self.take(self._to("\n") + 1)
                if line.strip() == end:
                    break
                body.append(line)
            self.skipped.append((start, "".join(body)))
        self.heredocs.clear()

    def _arithmetic_command(self) -> RawWord:
        line = self.line
        raw = self.take(max(self._to("))") + 2, 2))
        return RawWord((Part("odd", raw, line, why="arithmetic is not read"),), line)

    def _word_or_array(self) -> RawWord | ArrayAssignment:
        word = self._word()
        plain = word.plain or ""
        found = ASSIGNMENT.fullmatch(plain)
        if found and not found[2] and self.peek() == "(":
            self.take()
            return ArrayAssignment(found[1], bool(found[3]), tuple(self._array()), word.line)
        return word

    def _array(self) -> Iterator[RawWord]:
        while self.at < len(self.text) and self.peek() != ")":
            char = self.peek()
            if char in " \t\r\n":
                self.take()
            elif char == "\\" and self.peek(1) == "\n":
                self.take(2)
            elif char == "#":
                self.take(self._to("\n"))
            elif char in ";&|<>(":  # no array after all; go on behind it
                self.take()
            else:
                yield self._word()
        self.take()

    def _word(self) -> RawWord:
        line, parts = self.line, list[Part]()
        while self.at < len(self.text):
            char = self.peek()
            if char in " \t\r\n;&|()<>":
                break
            parts += self._piece(char)
        return RawWord(tuple(parts), line)

    def _piece(self, char: str) -> list[Part]:
        line = self.line
        if char == "\\":
            taken = self.take(2)
            return [] if taken == "\\\n" else [Part("text", taken[1:], line, quoted=True)]
        if char == "'":
            self.take()
            return self._lines(self.take(self._to("'")), line, after=1)
        if char == '"':
            self.take()
            return self._double_quoted()
        if char == "$" and self.peek(1) == "'":
            self.take(2)
            body = self.take(self._to("'"))
            self.take()
            return [Part("odd", f"$'{body}'", line, why="an escaped string is not read")]
        if char in "$`":
            return [self._expansion(quoted=False, depth=0)]
        end = re.compile(r"[^ \t\r\n;&|()<>\\'\"$`]+").match(self.text, self.at)
        assert end is not None
        return [Part("text", self.take(len(end[0])), line)]

    def _lines(self, text: str, line: int, after: int = 0) -> list[Part]:
        """Quoted text, a part for each of its lines."""
        self.take(after)
        pieces = text.split("\n")
        last = len(pieces) - 1
        return [
            Part("text", piece + ("\n" if i < last else ""), line + i, quoted=True)
            for i, piece in enumerate(pieces)
        ]

    def _double_quoted(self) -> list[Part]:
        parts: list[Part] = []
        while self.at < len(self.text):
            char, line = self.peek(), self.line
            if char == '"':
                self.take()
                break
            if char == "\\" and self.peek(1) and self.peek(1) in '\\"$`\n':
                taken = self.take(2)
                parts += [] if taken[1] == "\n" else [Part("text", taken[1], line, quoted=True)]
            elif char in "$`":
                parts.append(self._expansion(quoted=True, depth=0))
            else:
                end = re.compile(r'\\|[^"\\$`]+').match(self.text, self.at)
                assert end is not None
                parts += self._lines(self.take(len(end[0])), line)
        return parts or [Part("text", "", self.line, quoted=True)]

    # ------------------------------------------------------------ expansions

    def _expansion(self, quoted: bool, depth: int) -> Part:
        line, start = self.line, self.at
        if self.peek() == "`":
            self.take()
            self.take(self._to("`") + 1)
            return self._odd(start, line, quoted, "command substitution is not read")
        self.take()
        char = self.peek()
        if char == "(":
            self._balanced("(", ")")
            arithmetic = self.text.startswith("((", start + 1)
            what = "arithmetic" if arithmetic else "command substitution"
            return self._odd(start, line, quoted, f"{what} is not read")
        if char == "{":
            return self._braced(start, line, quoted, depth)
        if found := NAME.match(self.text, self.at):
            self.take(len(found[0]))
            return Part("variable", self.text[start : self.at], line, quoted, found[0])
        if char and char in "0123456789@*#?$!-":
            self.take()
            raw = self.text[start : self.at]
            return Part("variable", raw, line, quoted, char)
        return Part("text", "$", line, quoted)

    def _odd(self, start: int, line: int, quoted: bool, why: str) -> Part:
        return Part("odd", self.text[start : self.at], line, quoted, why=why)

    def _balanced(self, opening: str, closing: str) -> None:
        """Over a bracketed text, quotes respected, however deep."""
        depth = 0
        while self.at < len(self.text):
            char = self.take()
            if char == "\\":
                self.take()
            elif char == "'":
                self.take(self._to("'") + 1)
            elif char == '"':
                found = re.compile(r'(?:[^"\\]|\\.)*"?', re.DOTALL).match(self.text, self.at)
                self.take(len(found[0]) if found else 0)
            else:
                depth += (char == opening) - (char == closing)
                if depth == 0:
                    return

    def _braced(self, start: int, line: int, quoted: bool, depth: int) -> Part:
        head = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*|[0-9@*#?]+)(\[[@*]\])?(:?[-=?+])?").match(
            self.text, self.at
        )
        rest = self.at + len(head[0]) if head else self.at
        plain_end = rest < len(self.text) and self.text[rest] == "}"
        if head is None or depth >= DEEPEST or not (plain_end or head[3]):
            self._balanced("{", "}")
            return self._odd(start, line, quoted, "this expansion is not read")
        self.take(len(head[0]))
        default = self._default(depth + 1)
        raw = self.text[start : self.at]
        kind = "array" if head[2] else "variable"
        op = "*" if head[2] == "[*]" else head[3] or ""
        return Part(kind, raw, line, quoted, head[1], op, tuple(default))

    def _default(self, depth: int) -> list[Part]:
        """Parts up to the closing brace."""
        parts: list[Part] = []
        while self.at < len(self.text):
            char, line = self.peek(), self.line
            if char == "}":
                self.take()
                break
            if char in "$`":
                parts.append(self._expansion(quoted=False, depth=depth))
            elif char == "\\":
                parts.append(Part("text", self.take(2)[1:], line))
            elif char in "'\"":
                quote = self.take()
                parts.append(Part("text", self.take(self._to(quote)), line))
                self.take()
            else:
                parts.append(Part("text", self.take(), line))
        return parts
