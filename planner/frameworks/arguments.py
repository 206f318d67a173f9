"""Settings out of what people launch with: shell words, TOML, JSON, YAML.

Megatron-LM and torchtitan arguments in shell scripts or plain, torchtitan's TOML, DeepSpeed's JSON,
accelerate's YAML. The names are those of the targets' tables; nothing is executed.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

from planner.errors import InputError
from planner.frameworks.launchers.accelerator_count import LAUNCHER_OPTIONS, accelerator_count
from planner.frameworks.script import AcceleratorCount, LaunchScript, Note, ScriptSetting
from planner.frameworks.shell.expand import ShellScript, read_shell
from planner.frameworks.shell.words import Word
from planner.frameworks.target import Arity, target
from planner.inputs.documents import Node
from planner.inputs.json_text import read_json
from planner.inputs.yaml_text import read_yaml

SHELL_TARGETS = ("megatron", "torchtitan", "torchtitan-toml")
"""Targets whose settings a shell script may have; torchtitan before 0.3 takes its own as flags."""

READABLE = (
    "arguments of Megatron-LM or torchtitan, a shell script with them, TOML of torchtitan, JSON of "
    "DeepSpeed, YAML of accelerate"
)

RECOMPUTE_SUBCOMMAND = "activation-checkpoint"
"""torchtitan's `activation-checkpoint:full`, a setting without dashes."""


@cache
def known_settings(target_name: str) -> Mapping[str, Arity]:
    """A target's settings that are read, and how many values each takes."""
    return target(target_name).arities()


# ---------------------------------------------------------------- files of keys and values


def read_json_settings(text: str, path: str, target_name: str | None) -> LaunchScript | None:
    """A text that is DeepSpeed's JSON; None: it is not. target_name: what it must be, if known.

    Raises:
        InputError: it is JSON that cannot be read, or has no known setting.
    """
    if target_name not in (None, "deepspeed") or not text.lstrip().startswith("{"):
        return None
    return _from_tree("deepspeed", path, read_json(text, path))


def read_toml_settings(text: str, path: str, target_name: str | None) -> LaunchScript | None:
    """A text that is torchtitan's TOML; None: it is not. target_name: what it must be, if known.

    Raises:
        InputError: it is TOML that cannot be read, or has no known setting.
    """
    if target_name not in (None, "torchtitan-toml"):
        return None
    first = next((line for line in text.splitlines() if line.strip() and line[0] != "#"), "")
    # `[table]` or `key = value`: assignments of bash have no blanks around the sign
    looks_so = re.match(r"\s*(\[[\w.\"]+\]\s*(#.*)?$|[\w.\"]+\s+=\s)", first)
    # torchtitan-toml may also be flags in a shell script
    if not looks_so and (target_name is None or "--" in text):
        return None
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError: a number too long, too
        line = re.search(r"line (\d+)", str(error))
        raise InputError(
            f"not readable as TOML: {error}", path=path, line=int(line[1]) if line else None,
            allowed="a TOML document",
        ) from None  # fmt: skip
    return _from_keys("torchtitan-toml", path, _flat(document), partial(_line_in_toml, text))


def _line_in_toml(text: str, key: str) -> int | None:
    """The line of a dotted key, sought as text: tomllib keeps no lines."""
    table, _, name = key.rpartition(".")
    head = re.search(rf"^\s*\[{re.escape(table)}\]", text, re.MULTILINE)
    start = head.end() if head else 0
    entry = re.compile(rf"^\s*{re.escape(name)}\s*=", re.MULTILINE).search(text, start)
    return None if entry is None else text.count("\n", 0, entry.end() - 1) + 1


def read_yaml_settings(text: str, path: str, target_name: str | None) -> LaunchScript | None:
    """A text that is accelerate's YAML; None: it is not. target_name: what it must be, if known.

    Raises:
        InputError: it is YAML that cannot be read, or has no known setting.
    """
    if target_name not in (None, "accelerate"):
        return None
    lines = (line for line in text.splitlines() if line.strip() not in ("", "---"))
    first = next((line for line in lines if not line.lstrip().startswith("#")), "")
    if target_name is None and not re.match(r"[A-Za-z_][\w.]*:(\s|$)", first):
        return None
    root = read_yaml(text, path)
    if not isinstance(root.value, Mapping):
        raise InputError("is no mapping", path=path, allowed=READABLE)
    return _from_tree("accelerate", path, root)


def _from_tree(target_name: str, path: str, root: Node) -> LaunchScript:
    lines: dict[str, int | None] = {}
    _collect_lines(root, lines)
    return _from_keys(target_name, path, _flat(root.plain()), lines.get)


def _collect_lines(node: Node, lines: dict[str, int | None]) -> None:
    """Keep the line of every dotted key."""
    lines[node.key] = node.line
    if isinstance(node.value, Mapping):
        for child in node.value.values():
            _collect_lines(child, lines)


def _flat(document: Any, around: str = "") -> dict[str, Any]:
    """Dotted keys to values; lists stay as they are."""
    if not isinstance(document, Mapping):
        return {around: document} if around else {}
    values: dict[str, Any] = {}
    for name, value in document.items():
        values |= _flat(value, f"{around}.{name}" if around else str(name))
    return values


def _from_keys(
    target_name: str, path: str, values: Mapping[str, Any], line_of: Callable[[str], int | None]
) -> LaunchScript:
    """The script of a target that a file's dotted keys and values are."""
    known = known_settings(target_name)
    # DeepSpeed's "auto" leaves a value to the program
    settings = {
        key: ScriptSetting(key, value, line_of(key))
        for key, value in values.items()
        if key in known and value is not None and value != "auto"
    }
    if not settings:
        raise InputError(f"nothing in it is known of {target_name}", path=path, allowed=READABLE)
    unknown = [Note(key, _not_read(key, known), line_of(key)) for key in values if key not in known]
    automatic = [
        Note(key, "is auto: the program's", line_of(key))
        for key, value in values.items()
        if key in known and value == "auto"
    ]
    script = LaunchScript(target_name, path, settings, ignored=(*unknown, *automatic))
    return replace(script, count=_process_count(script))


def _process_count(script: LaunchScript) -> AcceleratorCount:
    """The accelerators that accelerate's own file names."""
    name = "num_processes"
    if script.target != "accelerate" or not script.has(name):
        return AcceleratorCount()
    return AcceleratorCount(total=script.integer(name), settings=(name,), line=script.line(name))


def _not_read(name: str, known: Mapping[str, Arity]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, known, n=1, cutoff=0.9)
    return f"is not read; did you mean '{near[0]}'?" if near else "is not read"


# ---------------------------------------------------------------- shell scripts


def read_shell_settings(
    text: str, path: str, target_name: str | None, variables: Mapping[str, str]
) -> LaunchScript:
    """The job that a shell script starts, or that plain arguments are.

    target_name: what it must be, if known. variables: values of shell variables from outside.

    Raises:
        InputError: nothing in it is known, a value that counts is not, or it starts different jobs.
    """
    shell = read_shell(text, path, variables)
    candidates = [target_name] if target_name is not None else list(SHELL_TARGETS)
    jobs = {name: _jobs(shell, name) for name in candidates if name in SHELL_TARGETS}
    # the target whose settings the most words of a command name
    name = max(
        jobs, key=lambda k: max((_known_words(job, k) for job in jobs[k]), default=0), default=""
    )
    if not name or not jobs[name]:
        raise InputError(
            f"nothing in it is known of {' or '.join(candidates)}", path=path, allowed=READABLE,
        )  # fmt: skip
    scripts = [_from_words(words, name, path, shell) for words in jobs[name]]
    _require_one_job(scripts, jobs[name], path)
    in_heredocs = [
        Note(setting, "stands in a here-document, which is not read", line)
        for line, body in shell.heredocs
        for setting in known_settings(name)
        if f"{setting} " in body
    ]
    return replace(scripts[0], unread=(*scripts[0].unread, *in_heredocs))


def _require_one_job(
    scripts: Sequence[LaunchScript], jobs: Sequence[Sequence[Word]], path: str
) -> None:
    """Refuse a script that starts jobs with different settings."""
    if any(other.values() != scripts[0].values() for other in scripts[1:]):
        lines = " and ".join(str(min(word.line for word in job)) for job in jobs)
        raise InputError(
            "it starts jobs with different settings", path=path, line=jobs[1][0].line,
            value=lines, allowed=f"one job; give one of those on lines {lines} alone",
        )  # fmt: skip


def _jobs(shell: ShellScript, target_name: str) -> list[tuple[Word, ...]]:
    """Commands with settings of the target; without any, the arrays and texts that have them."""
    commands = [
        words
        for words in shell.commands
        if _known_words(words, target_name) and (len(words) > 1 or _is_flag(words[0]))
    ]
    # commands that start with a program, not lines of arguments
    started = [words for words in commands if not _is_flag(words[0])]
    if started:
        return started
    if commands:  # a file of arguments, some on each line
        bare = [words for words in shell.commands if _is_flag(words[0])]
        return [tuple(word for words in bare for word in words)]
    arrays = [words for words in shell.arrays.values() if _known_words(words, target_name)]
    return [tuple(word for words in arrays for word in words)] if arrays else []


def _is_flag(word: Word) -> bool:
    return word.text.startswith("-")


def _known_words(words: Sequence[Word], target_name: str) -> int:
    """How many words name settings of a target."""
    known = known_settings(target_name)
    return sum(_setting_name(word, target_name) in known for word in words)


def _setting_name(word: Word, target_name: str) -> str | None:
    """The setting that a word names, as the target's table writes it."""
    text = word.prefix
    if target_name == "torchtitan" and text.startswith(f"{RECOMPUTE_SUBCOMMAND}:"):
        return RECOMPUTE_SUBCOMMAND
    if not text.startswith("--") or len(text) < 3:
        return None
    name, equals, _ = text.partition("=")
    if word.why is not None and not equals and word.known < len(word.text) and word.known:
        return None  # a name put together from what is not known
    if target_name == "megatron":
        return name
    # torchtitan's parser takes dashes for underscores; names in the TOML's table have no "--"
    section, dot, rest = name.removeprefix("--").rpartition(".")
    name = f"{section}{dot}{rest.replace('-', '_')}"
    return f"--{name}" if target_name == "torchtitan" else name


def _with_values(
    words: Sequence[Word], target_name: str
) -> list[tuple[str | None, Word, list[Word]]]:
    """The words of a command as settings: a name (None of words before the first), the word that
    has it, and the words of its values."""
    groups: list[tuple[str | None, Word, list[Word]]] = []
    for word in words:
        name = _setting_name(word, target_name)
        if groups and name is None and not word.text.startswith("--"):
            groups[-1][2].append(word)
        else:
            groups.append((name, word, []))
    return groups


def _from_words(
    words: Sequence[Word], target_name: str, path: str, shell: ShellScript
) -> LaunchScript:
    """The script of a target that a command's words are."""
    known = known_settings(target_name)
    settings: dict[str, ScriptSetting] = {}
    ignored: list[Note] = []
    unread = [Note(w.text, "is another file, which is not read", w.line) for w in shell.sourced]
    missing: list[Note] = []
    for name, word, values in _with_values(words, target_name):
        # a flag that only a branch adds: its text is there, but not whether it is passed
        uncertain_flag = word.text.startswith("--") and "=" not in word.text and word.known == 0
        if name is None or (word.why and uncertain_flag):
            unread += _unread_words([word, *values], known, target_name)
        elif name not in known:
            if name.replace("_", "-") not in LAUNCHER_OPTIONS:
                ignored.append(Note(name, _not_read(name, known), word.line))
        elif setting := _setting(name, known[name], word, values):
            settings[name] = setting  # of a repeated flag the last counts, as in argparse
        else:
            bad = next((w for w in [word, *values] if w.why), word)
            missing.append(Note(name, bad.why or "has no value", bad.line))
    if missing:
        raise InputError(
            f"its value is not known: {missing[0].text}", path=path, line=missing[0].line,
            key=missing[0].subject,
            allowed="a value in the script, or --env NAME=VALUE for a variable",
        )  # fmt: skip
    count = accelerator_count(words, shell)
    once = tuple(dict.fromkeys(unread))
    return LaunchScript(target_name, path, settings, count, tuple(ignored), once)


def _unread_words(
    words: Sequence[Word], known: Mapping[str, Arity], target_name: str
) -> list[Note]:
    """Words that are not known and may hold settings: those that only a branch adds, outputs."""
    first, *values = words
    if _setting_name(replace(first, why=None), target_name) in known:
        return [Note(" ".join(word.text for word in words), first.why or "", first.line)]
    return [
        Note(word.text, word.why, word.line)
        for word in [*([] if first.text.startswith("--") else [first]), *values]
        if word.why is not None
    ]


def _setting(name: str, arity: Arity, word: Word, values: Sequence[Word]) -> ScriptSetting | None:
    """The setting with its value; None where that is not known."""
    _, equals, text = word.text.partition("=")
    if name == RECOMPUTE_SUBCOMMAND:  # its value is behind a colon
        return ScriptSetting(name, word.text.partition(":")[2], word.line, word.overridable)
    if equals:
        return None if word.why else ScriptSetting(name, text, word.line, word.overridable)
    if arity == "switch":  # torchtitan's also take true and false
        given = values[0].text.lower() if values else ""
        value: Any = given if given in ("true", "false") else True
        return ScriptSetting(name, value, word.line, word.overridable)
    taken = values if arity == "many" else values[:1]
    if not taken or any(value.why for value in taken):
        return None
    if arity == "many":
        return ScriptSetting(name, [value.text for value in taken], word.line)
    return ScriptSetting(name, taken[0].text, word.line, taken[0].overridable)
