"""What a launch script would start: its commands with variables and arrays put in, never run.

A value that depends on what is not read (a command's output, a branch, the environment) stays
unknown, with the reason and its line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from planner.errors import InputError
from planner.frameworks.shell.lexer import (
    ASSIGNMENT,
    MAX_DEPTH,
    NAME,
    ArrayAssignment,
    Lexer,
    Operator,
    RawWord,
    Segment,
    SegmentKind,
)
from planner.frameworks.shell.words import Piece, Value, Word, WordBuilder

OPTION_C = re.compile(r"-\w*c")
MAX_CHARACTERS = 1_000_000
"""That all expansions of a script may make: A=$A$A, often enough, makes any number."""

OPENING = {"if", "for", "while", "until", "case", "select", "function", "{"}
CLOSING = {"fi", "done", "esac", "}"}
PREFIXES = {"then", "do", "else", "elif", "!", "time"}
"""Keywords that open a branch, close one, or stand before a command."""

ASSIGNING = {"read", "mapfile", "readarray", "unset", "let"}
"""Commands that change the variables they name."""

DECLARING = {"export", "declare", "readonly", "local", "typeset"}
"""Commands whose arguments are assignments."""


@dataclass(slots=True)
class ShellScript:
    """What a script would run, words expanded.

    options: those of `#SBATCH` lines. sourced: files that it reads. heredocs: bodies of
    here-documents, with the lines they start on.
    """

    commands: list[tuple[Word, ...]] = field(default_factory=list)
    arrays: dict[str, tuple[Word, ...]] = field(default_factory=dict)
    options: tuple[Word, ...] = ()
    sourced: list[Word] = field(default_factory=list)
    heredocs: list[tuple[int, str]] = field(default_factory=list)


def read_shell(text: str, path: str, variables: Mapping[str, str] | None = None) -> ShellScript:
    """The commands a script would run.

    variables: values from outside, whatever the script assigns.

    Raises:
        InputError: its expansions make more than a million characters.
    """
    text = text.replace("\r\n", "\n")
    reader = _Reader(path, dict(variables or {}))
    reader.read(Lexer(text))
    reader.script.options = tuple(_sbatch(text))
    reader.script.arrays = {name: tuple(words) for name, words in reader.arrays.items()}
    return reader.script


def _sbatch(text: str) -> Iterator[Word]:
    """Words of the #SBATCH lines before the first command."""
    for number, line in enumerate(text.split("\n"), 1):
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            return
        if line.startswith("#SBATCH"):
            yield from (Word(w, number) for w in line.split(" #")[0].split()[1:])


Line = list[RawWord | ArrayAssignment]
"""One simple command before expansion."""


class _Reader:
    """Goes through a script's commands in order and keeps what its variables are."""

    def __init__(self, path: str, variables: Mapping[str, str]) -> None:
        self.path = path
        self.from_outside = variables  # they win over what the script assigns
        self.scalars: dict[str, Value] = {}
        self.arrays: dict[str, list[Word]] = {}
        self.script = ShellScript()
        self.characters_made = 0
        self.depth = 0

    def read(self, lexer: Lexer) -> None:
        """Read every command in order."""
        stack: list[str] = []  # keywords and brackets of the branches that are open
        line: Line = []
        branch, skip_next = False, False
        for token in lexer.tokens():
            if isinstance(token, Operator):
                text = token.text
                if text != "\n" and _in_test(line):
                    continue  # `&&` and `<` of a `[[ … ]]`
                if text[0] in "<>" or text == "&>":  # a redirection: its file is no argument
                    skip_next = True
                    continue
                self._read_line(line, stack, branch)
                # what follows && or || runs in some cases only
                branch = text in ("&&", "||")
                line = []
                if text == "(":
                    stack.append("(")
                elif text == ")" and stack and stack[-1] == "(":
                    stack.pop()
            elif skip_next:
                skip_next = False
            else:
                line.append(token)
        self._read_line(line, stack, branch)
        self.script.heredocs += lexer.heredocs

    def _read_line(self, line: Line, stack: list[str], branch: bool) -> None:
        """Read one simple command, its keywords taken off."""
        while line and isinstance(line[0], RawWord):
            word = line[0].plain
            if word in CLOSING:
                if stack:
                    stack.pop()
            elif word in OPENING:
                stack.append(word)
                if word in ("for", "select") and len(line) > 1:
                    self._forget(line[1], f"is set by `{word}` on line {line[0].line}")
                    return
                if word in ("case", "function"):  # the rest of the line is a pattern or a name
                    return
            elif word not in PREFIXES:
                break
            line = line[1:]
        if not line:
            return
        why = f"only in some cases (line {line[0].line})" if stack or branch else None
        command = self._read_assignments(line, why)
        if command:
            self._read_command(command)

    def _read_assignments(self, line: Line, why: str | None) -> list[RawWord]:
        """Assign what the line assigns; return the words of a command, if one follows.

        why: the values are not known, if so.
        """
        declares = isinstance(line[0], RawWord) and line[0].plain in DECLARING
        if declares:
            line = line[1:]
        words = [i for i, t in enumerate(line) if isinstance(t, RawWord) and not _assigns(t)]
        if words and not declares:  # `A=1 command`: the assignment holds for that command only
            return [token for token in line[words[0] :] if isinstance(token, RawWord)]
        for token in line:
            if isinstance(token, ArrayAssignment):
                self._assign_array(token, why)
            elif _assigns(token):
                self._assign(token, why)
        return []

    def _read_command(self, words: list[RawWord]) -> None:
        name = words[0].plain or ""
        if name in ("source", ".") and len(words) > 1:
            self.script.sourced += self.expand(words[1])[:1]
            return
        # (( … )) may assign to any variable that it names
        if name in ASSIGNING or "((" in words[0].segments[0].text:
            for word in words:
                self._forget(word, f"is changed on line {words[0].line}")
            return
        expanded = [piece for word in words for piece in self.expand(word)]
        for script in _inner_scripts(expanded):
            self._read_inner(script)
        self.script.commands.append(tuple(expanded))

    def _read_inner(self, word: Word) -> None:
        """Read a script in a word, of `eval` or `bash -c`, but for what only a branch adds."""
        if self.depth >= MAX_DEPTH:
            return
        pieces = word.pieces or (Piece(word.text, word.line, word.why),)
        kept = [piece for piece in pieces if piece.why is None or piece.opaque]
        self.script.commands += [
            (Word(piece.text.strip(), piece.line, piece.why),)
            for piece in pieces
            if piece.why is not None and not piece.opaque
        ]
        self.depth += 1  # a script in a script in a script …
        self.read(Lexer("".join(piece.text for piece in kept), word.line))
        self.depth -= 1

    # ------------------------------------------------------------ assignment

    def _forget(self, token: RawWord | ArrayAssignment, why: str) -> None:
        """Make the variables unknown that a command names."""
        if isinstance(token, ArrayAssignment):
            return
        for name in NAME.findall("".join(segment.text for segment in token.segments)):
            self.scalars[name] = (Piece(f"${name}", token.line, f"{name} {why}", opaque=True),)
            self.arrays.pop(name, None)

    def _assign(self, token: RawWord, why: str | None) -> None:
        first = token.segments[0]
        assigned = ASSIGNMENT.match(first.text)
        assert assigned is not None
        name, element, appends = assigned.groups()
        if name in self.from_outside:
            return
        if element:
            owner = Segment(SegmentKind.TEXT, name, token.line)
            why = f"has an element set on line {token.line}"
            self._forget(replace(token, segments=(owner,)), why)
            return
        rest = replace(first, text=first.text[assigned.end() :])
        new = tuple(self._value((rest, *token.segments[1:])))
        old = self.scalars.get(name, ())
        if appends:
            new = (*old, *new)
        self.arrays.pop(name, None)
        self.scalars[name] = new if why is None else _branched(name, old, new, why)

    def _assign_array(self, token: ArrayAssignment, why: str | None) -> None:
        if token.name in self.from_outside:
            return
        words = [word for raw in token.words for word in self.expand(raw)]
        if why is not None:
            words = [replace(w, why=w.why or f"set {why}", known=0) for w in words]
        before = self.arrays.get(token.name)
        if before is None and token.append and token.name in self.scalars:
            before = self._words(self.scalars[token.name])
        if token.append:
            self.arrays[token.name] = [*(before or []), *words]
        else:  # in a branch either array may be the one that counts
            others = [] if why is None else before or []
            others = [replace(w, why=w.why or f"set otherwise {why}", known=0) for w in others]
            self.arrays[token.name] = [*others, *words]
        self.scalars.pop(token.name, None)

    # ------------------------------------------------------------ expansion

    def _value(self, segments: Iterable[Segment]) -> Iterator[Piece]:
        """Pieces of segments that are not split into words: of a quoted text or an assignment."""
        for segment in segments:
            if segment.kind is SegmentKind.TEXT:
                yield self._counted(Piece(segment.text, segment.line))
            elif segment.kind is SegmentKind.UNREAD:
                yield Piece(segment.text, segment.line, segment.why, opaque=True)
            elif segment.name in self.arrays:
                for i, word in enumerate(self.arrays[segment.name]):
                    text = (" " if i else "") + word.text
                    piece = Piece(text, word.line, word.why, overridable=word.overridable)
                    yield self._counted(piece)
            else:
                yield from self._scalar(segment)

    def _scalar(self, segment: Segment) -> Iterator[Piece]:
        """A variable's value, its default, or that it is not known."""
        name, op = segment.name, segment.op.removeprefix(":")
        if name in self.from_outside:
            yield self._counted(Piece(self.from_outside[name], segment.line))
            return
        value = self.scalars.get(name)
        empty = value is not None and segment.op.startswith(":") and not _text(value)
        if value is not None and not empty and op != "+":
            yield from map(self._counted, value)
        elif op in ("-", "=") and value is None:
            default = [replace(p, overridable=True) for p in self._value(segment.default)]
            if op == "=":
                self.scalars[name] = tuple(default)
            yield from default or [Piece("", segment.line, overridable=True)]
        elif op in ("-", "=") and empty:
            yield from self._value(segment.default)
        else:
            why = "comes from outside" if not name[0].isalpha() else "is not set in the script"
            why = "is not read" if op == "+" else why
            yield Piece(segment.text, segment.line, f"{segment.text} {why}", opaque=True)

    def _counted(self, piece: Piece) -> Piece:
        """The piece, its characters added to those that the script has made."""
        self.characters_made += len(piece.text)
        if self.characters_made > MAX_CHARACTERS:
            raise InputError(
                "the script's expansions make too much text", path=self.path, line=piece.line,
                allowed=f"at most {MAX_CHARACTERS:,} characters",
            )  # fmt: skip
        return piece

    def expand(self, word: RawWord) -> list[Word]:
        """The words that a word makes."""
        builder = WordBuilder(word.line)
        for segment in word.segments:
            if self._is_list(segment):
                elements = self.arrays[segment.name]
                for element in elements:
                    self._counted(Piece(element.text, element.line))
                builder.add_elements(elements)
            elif segment.quoted or segment.kind is SegmentKind.TEXT:
                builder.add(self._value([segment]))
            else:
                builder.add_split(self._value([segment]))
        return builder.finished()

    def _is_list(self, segment: Segment) -> bool:
        """Whether a segment is `"${NAME[@]}"` of a known array, which makes a word an element."""
        quoted_array = segment.kind is SegmentKind.ARRAY and segment.quoted
        return quoted_array and segment.op != "*" and segment.name in self.arrays

    def _words(self, value: Value) -> list[Word]:
        builder = WordBuilder(value[0].line if value else 1)
        builder.add_split(value)
        return builder.finished()


def _text(value: Value) -> str:
    return "".join(piece.text for piece in value)


def _assigns(token: RawWord) -> bool:
    """Whether a word is `NAME=value`."""
    first = token.segments[0] if token.segments else None
    if first is None or first.kind is not SegmentKind.TEXT or first.quoted:
        return False
    return ASSIGNMENT.match(first.text) is not None


def _in_test(line: Line) -> bool:
    """Whether a `[[` is open, in which operators end no command."""
    plain = [token.plain for token in line if isinstance(token, RawWord)]
    return "[[" in plain and "]]" not in plain


def _branched(name: str, old: Value, new: Value, why: str) -> Value:
    """A value set in a branch: known where nothing changes, or but for what is added."""
    before, after = _text(old), _text(new)
    if old and before == after:
        return old
    if old and after.startswith(before):
        line = new[-1].line
        added = after[len(before) :]
        return (*old, Piece(added, line, f"{name} is longer {why}", opaque=not added[0].isspace()))
    return (Piece(f"${name}", new[0].line if new else 1, f"{name} is set {why}", opaque=True),)


def _inner_scripts(words: list[Word]) -> Iterator[Word]:
    """Words of a command that are scripts themselves."""
    if len(words) == 2 and words[0].text == "eval":
        yield words[1]
    for shell, option, script in zip(words, words[1:], words[2:], strict=False):
        if shell.text.rpartition("/")[2] in ("bash", "sh") and OPTION_C.fullmatch(option.text):
            yield script
