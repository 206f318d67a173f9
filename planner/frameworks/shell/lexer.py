"""Shell text into commands of unexpanded words: an exact reader of what launch scripts use.

Nothing is executed. What is read exactly: words, quotes, escapes, continued lines, comments,
`NAME=value`, `NAME=(…)`, `NAME+=…`, `$NAME`, `${NAME}`, `${NAME:-default}`, `${NAME[@]}`, and where
commands begin and end. Everything else (command substitution, arithmetic, patterns) is one segment
with the reason why it is not read; the words around it stay readable.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\[[^\]]*\])?(\+?)=")
# longer ones first: `&&` begins as `&` does
OPERATORS = (*["&&", "||", ";;", "&>", ">>", "<<<", "<<", ">&", "<&"], *";&|()><")
HEREDOC = re.compile(r"-?[ \t]*(['\"\\]?)([A-Za-z_][A-Za-z0-9_]*)\1?")
MAX_DEPTH = 24
"""Of expansions inside expansions; deeper ones are not read."""


class SegmentKind(Enum):
    """What a segment of a word is."""

    TEXT = auto()
    VARIABLE = auto()
    ARRAY = auto()
    UNREAD = auto()


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of a word before expansion; `text` is as written.

    name, op, default: of a variable, its operator and what follows that. Of an array `op` is "*"
    where its elements are joined. why: something unread is not read.
    """

    kind: SegmentKind
    text: str
    line: int
    quoted: bool = False
    name: str = ""
    op: str = ""
    default: tuple[Segment, ...] = ()
    why: str = ""


@dataclass(frozen=True, slots=True)
class RawWord:
    """A word before expansion."""

    segments: tuple[Segment, ...]
    line: int

    @property
    def plain(self) -> str | None:
        """Its text where nothing in it expands or is quoted."""
        if all(s.kind is SegmentKind.TEXT and not s.quoted for s in self.segments):
            return "".join(segment.text for segment in self.segments)
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
    """One pass over the text: position and line of what comes next."""

    def __init__(self, text: str, line: int = 1) -> None:
        self.text = text
        self.position = 0
        self.line = line
        self.pending_heredocs: list[str] = []  # ends of those that begin on the next line
        self.heredocs: list[tuple[int, str]] = []  # bodies, with the lines they start on

    def peek(self, ahead: int = 0) -> str:
        """The character so many places ahead, '' behind the text."""
        place = self.position + ahead
        return self.text[place] if place < len(self.text) else ""

    def take(self, count: int = 1) -> str:
        """The next characters, gone over."""
        taken = self.text[self.position : self.position + count]
        self.position += len(taken)
        self.line += taken.count("\n")
        return taken

    def tokens(self) -> Iterator[Token]:
        """Tokens in order; a new line is the operator of that text."""
        while self.position < len(self.text):
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
        place = self.text.find(end, self.position)
        return (len(self.text) if place < 0 else place) - self.position

    def _operator(self) -> Operator | None:
        for text in OPERATORS:
            if self.text.startswith(text, self.position):
                operator = Operator(text, self.line)
                self.take(len(text))
                if text == "<<":
                    self._heredoc()
                return operator
        return None

    def _heredoc(self) -> None:
        end = HEREDOC.match(self.text, self.position)
        if end:
            self.pending_heredocs.append(end[2])

    def _skip_heredocs(self) -> None:
        for end in self.pending_heredocs:
            start, body = self.line, []
            while self.position < len(self.text):
                line = self.take(self._to("\n") + 1)
                if line.strip() == end:
                    break
                body.append(line)
            self.heredocs.append((start, "".join(body)))
        self.pending_heredocs.clear()

    def _arithmetic_command(self) -> RawWord:
        line = self.line
        raw = self.take(max(self._to("))") + 2, 2))
        return RawWord(
            (Segment(SegmentKind.UNREAD, raw, line, why="arithmetic is not read"),), line
        )

    def _word_or_array(self) -> RawWord | ArrayAssignment:
        word = self._word()
        # `NAME=` directly before a bracket begins an array
        plain = word.plain or ""
        assigned = ASSIGNMENT.fullmatch(plain)
        if assigned and not assigned[2] and self.peek() == "(":
            self.take()
            return ArrayAssignment(assigned[1], bool(assigned[3]), tuple(self._array()), word.line)
        return word

    def _array(self) -> Iterator[RawWord]:
        while self.position < len(self.text) and self.peek() != ")":
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
        line, segments = self.line, list[Segment]()
        while self.position < len(self.text):
            char = self.peek()
            if char in " \t\r\n;&|()<>":
                break
            segments += self._segments(char)
        return RawWord(tuple(segments), line)

    def _segments(self, char: str) -> list[Segment]:
        line = self.line
        if char == "\\":
            taken = self.take(2)
            return (
                [] if taken == "\\\n" else [Segment(SegmentKind.TEXT, taken[1:], line, quoted=True)]
            )
        if char == "'":
            self.take()
            return self._by_line(self.take(self._to("'")), line, after=1)
        if char == '"':
            self.take()
            return self._double_quoted()
        if char == "$" and self.peek(1) == "'":
            self.take(2)
            body = self.take(self._to("'"))
            self.take()
            return [
                Segment(SegmentKind.UNREAD, f"$'{body}'", line, why="an escaped string is not read")
            ]
        if char in "$`":
            return [self._expansion(quoted=False, depth=0)]
        end = re.compile(r"[^ \t\r\n;&|()<>\\'\"$`]+").match(self.text, self.position)
        assert end is not None
        return [Segment(SegmentKind.TEXT, self.take(len(end[0])), line)]

    def _by_line(self, text: str, line: int, after: int = 0) -> list[Segment]:
        """Quoted text, a segment for each of its lines; goes over `after` characters behind it."""
        self.take(after)
        return [
            Segment(SegmentKind.TEXT, piece, line + i, quoted=True)
            for i, piece in enumerate(re.split(r"(?<=\n)", text))
        ]

    def _double_quoted(self) -> list[Segment]:
        segments: list[Segment] = []
        while self.position < len(self.text):
            char, line = self.peek(), self.line
            if char == '"':
                self.take()
                break
            if char == "\\" and self.peek(1) and self.peek(1) in '\\"$`\n':
                taken = self.take(2)
                segments += (
                    []
                    if taken[1] == "\n"
                    else [Segment(SegmentKind.TEXT, taken[1], line, quoted=True)]
                )
            elif char in "$`":
                segments.append(self._expansion(quoted=True, depth=0))
            else:
                end = re.compile(r'\\|[^"\\$`]+').match(self.text, self.position)
                assert end is not None
                segments += self._by_line(self.take(len(end[0])), line)
        return segments or [Segment(SegmentKind.TEXT, "", self.line, quoted=True)]

    # ------------------------------------------------------------ expansions

    def _expansion(self, quoted: bool, depth: int) -> Segment:
        line, start = self.line, self.position
        if self.peek() == "`":
            self.take()
            self.take(self._to("`") + 1)
            return self._unread(start, line, quoted, "command substitution is not read")
        self.take()
        char = self.peek()
        if char == "(":
            self._balanced("(", ")")
            arithmetic = self.text.startswith("((", start + 1)
            what = "arithmetic" if arithmetic else "command substitution"
            return self._unread(start, line, quoted, f"{what} is not read")
        if char == "{":
            return self._braced(start, line, quoted, depth)
        if name := NAME.match(self.text, self.position):
            raw = f"${self.take(len(name[0]))}"
            return Segment(SegmentKind.VARIABLE, raw, line, quoted, name[0])
        if char and char in "0123456789@*#?$!-":
            self.take()
            raw = self.text[start : self.position]
            return Segment(SegmentKind.VARIABLE, raw, line, quoted, char)
        return Segment(SegmentKind.TEXT, "$", line, quoted)

    def _unread(self, start: int, line: int, quoted: bool, why: str) -> Segment:
        return Segment(SegmentKind.UNREAD, self.text[start : self.position], line, quoted, why=why)

    def _balanced(self, opening: str, closing: str) -> None:
        """Over a bracketed text, quotes respected, however deep."""
        depth = 0
        while self.position < len(self.text):
            char = self.take()
            if char == "\\":
                self.take()
            elif char == "'":
                self.take(self._to("'") + 1)
            elif char == '"':
                text = re.compile(r'(?:[^"\\]|\\.)*"?', re.DOTALL).match(self.text, self.position)
                self.take(len(text[0]) if text else 0)
            else:
                depth += (char == opening) - (char == closing)
                if depth == 0:
                    return

    def _braced(self, start: int, line: int, quoted: bool, depth: int) -> Segment:
        head = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*|[0-9@*#?]+)(\[[@*]\])?(:?[-=?+])?").match(
            self.text, self.position
        )
        rest = self.position + len(head[0]) if head else self.position
        plain_end = rest < len(self.text) and self.text[rest] == "}"
        if head is None or depth >= MAX_DEPTH or not (plain_end or head[3]):
            self._balanced("{", "}")
            return self._unread(start, line, quoted, "this expansion is not read")
        self.take(len(head[0]))
        default = self._default(depth + 1)
        raw = self.text[start : self.position]
        kind = SegmentKind.ARRAY if head[2] else SegmentKind.VARIABLE
        op = "*" if head[2] == "[*]" else head[3] or ""
        return Segment(kind, raw, line, quoted, head[1], op, tuple(default))

    def _default(self, depth: int) -> list[Segment]:
        """Segments up to the closing brace."""
        segments: list[Segment] = []
        while self.position < len(self.text):
            char, line = self.peek(), self.line
            if char == "}":
                self.take()
                break
            if char in "$`":
                segments.append(self._expansion(quoted=False, depth=depth))
            elif char == "\\":
                segments.append(Segment(SegmentKind.TEXT, self.take(2)[1:], line))
            elif char in "'\"":
                quote = self.take()
                segments.append(Segment(SegmentKind.TEXT, self.take(self._to(quote)), line))
                self.take()
            else:
                segments.append(Segment(SegmentKind.TEXT, self.take(), line))
        return segments
