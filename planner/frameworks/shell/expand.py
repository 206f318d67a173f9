"""What a launch script would start: its commands with variables and arrays put in, never run.

A value that depends on what is not read (a command's output, a branch, the environment) stays
unknown and says why, with its line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from planner.errors import InputError
from planner.frameworks.shell.lexer import (
    ASSIGNMENT,
    DEEPEST,
    ArrayAssignment,
    Lexer,
    Operator,
    Part,
    RawWord,
)
from planner.frameworks.shell.words import Fields, Piece, Value, Word

OPTION_C = re.compile(r"-\w*c")
MOST_TEXT = 1_000_000
"""Characters that all expansions of a script may make: A=$A$A, often enough, makes any number."""

OPENS = {"if", "for", "while", "until", "case", "select", "function", "{"}
CLOSES = {"fi", "done", "esac", "}"}
PREFIXES = {"then", "do", "else", "elif", "!", "time"}
CHANGES = {"read", "mapfile", "readarray", "unset", "let"}
DECLARES = {"export", "declare", "readonly", "local", "typeset"}


@dataclass(slots=True)
class Script:
    """Commands with their words put in; arrays; `#SBATCH` options; files it reads."""

    commands: list[tuple[Word, ...]] = field(default_factory=list)
    arrays: dict[str, tuple[Word, ...]] = field(default_factory=dict)
    options: tuple[Word, ...] = ()
    sourced: list[Word] = field(default_factory=list)
    documents: list[tuple[int, str]] = field(default_factory=list)


def read_shell(text: str, path: str, variables: Mapping[str, str] | None = None) -> Script:
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


class _Reader:
    def __init__(self, path: str, outside: Mapping[str, str]) -> None:
        self.path = path
        self.outside = outside
        self.scalars: dict[str, Value] = {}
        self.arrays: dict[str, list[Word]] = {}
        self.script = Script()
        self.made = 0
        self.depth = 0

    def read(self, lexer: Lexer) -> None:
        """Every command in order."""
        stack: list[str] = []
        line: list[RawWord | ArrayAssignment] = []
        branch, skip_next = False, False
        for token in lexer.tokens():
            if isinstance(token, Operator):
                text = token.text
                if text != "\n" and _in_test(line):
                    continue
                if text[0] in "<>" or text == "&>":
                    skip_next = True
                    continue
                self._run(line, stack, branch)
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
        self._run(line, stack, branch)
        self.script.documents += lexer.skipped

    def _run(self, line: list[RawWord | ArrayAssignment], stack: list[str], branch: bool) -> None:
        """One simple command, its keywords taken off."""
        while line and isinstance(line[0], RawWord):
            word = line[0].plain
            if word in CLOSES:
                if stack:
                    stack.pop()
            elif word in OPENS:
                stack.append(word)
                if word in ("for", "select") and len(line) > 1:
                    self._unknown(line[1], f"is set by `{word}` on line {line[0].line}")
                    return
                if word in ("case", "function"):
                    return
            elif word not in PREFIXES:
                break
            line = line[1:]
        if not line:
            return
        why = f"only in some cases (line {line[0].line})" if stack or branch else None
        rest = self._assignments(line, why)
        if rest:
            self._command(rest)

    def _assignments(self, line: list[RawWord | ArrayAssignment], why: str | None) -> list[RawWord]:
        """Assign what the line assigns; the words of a command, if one follows."""
        declares = isinstance(line[0], RawWord) and line[0].plain in DECLARES
        if declares:
            line = line[1:]
        follows = [
            i for i, token in enumerate(line)
            if isinstance(token, RawWord) and not _assigns(token)
        ]  # fmt: skip
        if follows and not declares:
            return [token for token in line[follows[0] :] if isinstance(token, RawWord)]
        for token in line:
            if isinstance(token, ArrayAssignment):
                self._assign_array(token, why)
            elif _assigns(token):
                self._assign(token, why)
        return []

    def _command(self, words: list[RawWord]) -> None:
        name = words[0].plain or ""
        if name in ("source", ".") and len(words) > 1:
            self.script.sourced += self.expand(words[1])[:1]
            return
        if name in CHANGES or "((" in words[0].parts[0].text:
            for word in words:
                self._unknown(word, f"is changed on line {words[0].line}")
            return
        expanded = [piece for word in words for piece in self.expand(word)]
        for script in _nested(expanded):
            self._nested(script)
        self.script.commands.append(tuple(expanded))

    def _nested(self, word: Word) -> None:
        """A script in a word: of `eval` or `bash -c`. What only a branch adds to it is left out."""
        if self.depth >= DEEPEST:
            return
        pieces = word.pieces or (Piece(word.text, word.line, word.why),)
        read = [piece for piece in pieces if piece.why is None or piece.opaque]
        self.script.commands += [
            (Word(piece.text.strip(), piece.line, piece.why),)
            for piece in pieces
            if piece.why is not None and not piece.opaque
        ]
        self.depth += 1
        self.read(Lexer("".join(piece.text for piece in read), word.line))
        self.depth -= 1

    # ------------------------------------------------------------ assignment

    def _unknown(self, token: RawWord | ArrayAssignment, why: str) -> None:
        """Forget the variables that a command names."""
        if isinstance(token, ArrayAssignment):
            return
        for name in re.findall(r"[A-Za-z_][A-Za-z0-9_]*", "".join(p.text for p in token.parts)):
            self.scalars[name] = (Piece(f"${name}", token.line, f"{name} {why}", opaque=True),)
            self.arrays.pop(name, None)

    def _assign(self, token: RawWord, why: str | None) -> None:
        first = token.parts[0]
        found = ASSIGNMENT.match(first.text)
        assert found is not None
        name = found[1]
        if name in self.outside:
            return
        if found[2]:
            self._unknown(replace(token, parts=(Part("text", name, token.line),)),
                          f"has an element set on line {token.line}")  # fmt: skip
            return
        rest = replace(first, text=first.text[found.end() :])
        new = tuple(self._value((rest, *token.parts[1:])))
        old = self.scalars.get(name, ())
        if found[3]:
            new = (*old, *new)
        self.arrays.pop(name, None)
        self.scalars[name] = new if why is None else _branched(name, old, new, why)

    def _assign_array(self, token: ArrayAssignment, why: str | None) -> None:
        if token.name in self.outside:
            return
        words = [piece for word in token.words for piece in self.expand(word)]
        if why is not None:
            words = [replace(w, why=w.why or f"set {why}", known=0) for w in words]
        before = self.arrays.get(token.name)
        if before is None and token.append and token.name in self.scalars:
            before = self._fields(self.scalars[token.name])
        if token.append:
            self.arrays[token.name] = [*(before or []), *words]
        else:
            kept = [] if why is None else before or []
            self.arrays[token.name] = [
                *(replace(w, why=w.why or f"set otherwise {why}", known=0) for w in kept), *words
            ]  # fmt: skip
        self.scalars.pop(token.name, None)

    # ------------------------------------------------------------ expansion

    def _value(self, parts: Iterable[Part]) -> Iterator[Piece]:
        """Pieces of parts that are not split into words: of a quoted text or an assignment."""
        for part in parts:
            if part.kind == "text":
                yield self._counted(Piece(part.text, part.line))
            elif part.kind == "odd":
                yield Piece(part.text, part.line, part.why, opaque=True)
            elif part.kind == "array" or part.name in self.arrays:
                elements = self.arrays.get(part.name)
                if elements is None:
                    yield from self._scalar(part)
                for i, word in enumerate(elements or ()):
                    yield self._counted(Piece((" " if i else "") + word.text, word.line,
                                              word.why, outside=word.outside))  # fmt: skip
            else:
                yield from self._scalar(part)

    def _scalar(self, part: Part) -> Iterator[Piece]:
        """A variable's value, its default, or that nobody knows it."""
        name, op = part.name, part.op.removeprefix(":")
        if name in self.outside:
            yield self._counted(Piece(self.outside[name], part.line))
            return
        value = self.scalars.get(name)
        empty = value is not None and part.op.startswith(":") and not _text(value)
        if value is not None and not empty and op != "+":
            yield from map(self._counted, value)
        elif op in ("-", "=") and value is None:
            default = [replace(p, outside=True) for p in self._value(part.default)]
            if op == "=":
                self.scalars[name] = tuple(default)
            yield from default or [Piece("", part.line, outside=True)]
        elif op in ("-", "=") and empty:
            yield from self._value(part.default)
        else:
            why = "comes from outside" if not name[0].isalpha() else "is not set in the script"
            why = f"{part.text} is not read" if op == "+" else f"{part.text} {why}"
            yield Piece(part.text, part.line, why, opaque=True)

    def _counted(self, piece: Piece) -> Piece:
        self.made += len(piece.text)
        if self.made > MOST_TEXT:
            raise InputError(
                "the script's expansions make too much text", path=self.path, line=piece.line,
                allowed=f"at most {MOST_TEXT:,} characters",
            )  # fmt: skip
        return piece

    def expand(self, word: RawWord) -> list[Word]:
        """A word as the words it makes."""
        fields = Fields(word.line)
        for part in word.parts:
            if part.kind == "array" and part.quoted and part.op != "*" and part.name in self.arrays:
                fields.elements([self._element(w) for w in self.arrays[part.name]])
            elif part.quoted:
                fields.whole(self._value([part]))
            elif part.kind == "text":
                fields.whole([self._counted(Piece(part.text, part.line))])
            else:
                fields.split(self._value([part]))
        return fields.finished()

    def _element(self, word: Word) -> Word:
        self._counted(Piece(word.text, word.line))
        return word

    def _fields(self, value: Value) -> list[Word]:
        fields = Fields(value[0].line if value else 1)
        fields.split(value)
        return fields.finished()


def _text(value: Value) -> str:
    return "".join(piece.text for piece in value)


def _assigns(token: RawWord) -> bool:
    first = token.parts[0] if token.parts else None
    if first is None or first.kind != "text" or first.quoted:
        return False
    return ASSIGNMENT.match(first.text) is not None


def _in_test(line: list[RawWord | ArrayAssignment]) -> bool:
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


def _nested(words: list[Word]) -> Iterator[Word]:
    """Scripts inside a command's words."""
    if len(words) == 2 and words[0].text == "eval":
        yield words[1]
    for shell, option, script in zip(words, words[1:], words[2:], strict=False):
        if shell.text.rpartition("/")[2] in ("bash", "sh") and OPTION_C.fullmatch(option.text):
            yield script
