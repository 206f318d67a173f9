"""Launch scripts of others into settings: what kind of file it is, which settings it has.

Megatron-LM and torchtitan arguments in shell scripts or plain, torchtitan's TOML, DeepSpeed's JSON,
accelerate's YAML. The names are those of `targets/`; nothing is executed.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from planner.errors import InputError, UnknownNameError, nearest_of
from planner.frameworks.launch import Count, Launch, Note, Setting
from planner.frameworks.launch_count import LAUNCHER, count_of
from planner.frameworks.shell.expand import Script, read_shell
from planner.frameworks.shell.words import Word
from planner.frameworks.target import target
from planner.inputs.documents import Node
from planner.inputs.json_text import read_json
from planner.inputs.text import MAX_DOCUMENT_BYTES
from planner.inputs.yaml_text import read_yaml

READ = ("megatron", "torchtitan", "torchtitan-toml", "deepspeed", "accelerate")
"""Targets whose files are read back."""

SHELL = ("megatron", "torchtitan", "torchtitan-toml")
NAMED = "arguments of Megatron-LM or torchtitan, a shell script with them, TOML of torchtitan, " \
    "JSON of DeepSpeed, YAML of accelerate"  # fmt: skip

BESIDE: Mapping[str, tuple[str, ...]] = {
    # Settings that are read beside those of the target's table. A trailing * takes many values.
    "megatron": (
        "--num-layers-per-virtual-pipeline-stage", "--num-virtual-stages-per-pipeline-rank",
        "--pipeline-model-parallel-layout", "--decoder-first-pipeline-num-layers",
        "--decoder-last-pipeline-num-layers", "--account-for-embedding-in-pipeline-split!",
        "--account-for-loss-in-pipeline-split!", "--tp-comm-overlap!", "--overlap-grad-reduce!",
        "--overlap-param-gather!", "--no-overlap-p2p-communication!",
        "--overlap-moe-expert-parallel-comm!", "--recompute-activations!", "--cp-comm-type*",
        "--recompute-modules*", "--hierarchical-context-parallel-sizes*", "--cpu-offloading!",
        "--cpu-offloading-num-layers", "--offload-modules*",
        "--eval-micro-batch-size", "--eval-global-batch-size", "--use-megatron-fsdp!",
        "--use-torch-fsdp2!", "--data-parallel-sharding-strategy", "--group-query-attention!",
        "--position-embedding-type", "--max-position-embeddings",
        "--use-rotary-position-embeddings!", "--multi-latent-attention!", "--moe-layer-freq",
        "--moe-shared-expert-intermediate-size", "--moe-grouped-gemm!", "--moe-router-pre-softmax!",
        "--grad-reduce-in-bf16!", "--fp8-param-gather!", "--moe-enable-deepep!",
        "--add-qkv-bias!", "--moe-shared-expert-gate!",
    ),
    "torchtitan": (
        "--training.local_batch_size", "--parallelism.pipeline_parallel_schedule",
        "--parallelism.module_fqns_per_model_part*",
        "--parallelism.pipeline_parallel_layers_per_stage", "--compile.enable!",
        "--compile.enable_async_tensor_parallel!", "activation-checkpoint",
    ),
    "torchtitan-toml": (
        "training.local_batch_size", "parallelism.pipeline_parallel_schedule",
        "parallelism.module_fqns_per_model_part*", "parallelism.pipeline_parallel_layers_per_stage",
        "compile.enable!", "parallelism.enable_async_tensor_parallel!",
        "parallelism.expert_tensor_parallel_degree",
    ),
    "deepspeed": ("zero_optimization.overlap_comm", "pipeline.partition", "planner"),
    "accelerate": (
        "compute_environment", "distributed_type", "num_machines", "num_processes",
        "rdzv_backend", "fsdp_config.fsdp_version", "fsdp_config.fsdp_auto_wrap_policy",
        "fsdp_config.fsdp_state_dict_type",
    ),
}  # fmt: skip


@cache
def known_settings(name: str) -> Mapping[str, str]:
    """A target's settings that are read: name → how many values (switch, one, many)."""
    to = target(name)
    found = dict.fromkeys(to.names.values(), "one")
    for codes in to.codes.values():
        for code in codes.values():
            found |= {s: "switch" if value is True else "one" for s, value in code.items()}
    for setting in BESIDE[name]:
        kind = {"!": "switch", "*": "many"}.get(setting[-1], "one")
        found[setting.rstrip("!*")] = kind
    return found


def read_launch(
    text: str,
    path: str = "SCRIPT",
    target_name: str | None = None,
    variables: Mapping[str, str] | None = None,
) -> Launch:
    """The settings of a script, with their lines.

    target_name: of READ; found from the content without it. variables: values of shell variables
    from outside.

    Raises:
        UnknownNameError: no such target is read.
        InputError: not readable, nothing in it is known, or it starts different jobs.
    """
    if len(text) > MAX_DOCUMENT_BYTES:
        raise InputError(
            "is too long", path=path, allowed=f"at most {MAX_DOCUMENT_BYTES} characters"
        )
    if target_name is not None and target_name not in READ:
        raise UnknownNameError(
            f"scripts of '{target_name}' are not read", key="--target", value=target_name,
            allowed=", ".join(READ), nearest=nearest_of(target_name, READ),
        )  # fmt: skip
    text = text.removeprefix("\ufeff")
    for kind in (_json, _toml, _yaml):
        found = kind(text, path, target_name)
        if found is not None:
            return found
    return _shell(text, path, target_name, variables or {})


# ---------------------------------------------------------------- files of keys and values


def _json(text: str, path: str, forced: str | None) -> Launch | None:
    if forced not in (None, "deepspeed") or not text.lstrip().startswith("{"):
        return None
    return _of_tree("deepspeed", path, read_json(text, path))


def _toml(text: str, path: str, forced: str | None) -> Launch | None:
    if forced not in (None, "torchtitan-toml"):
        return None
    first = next((line for line in text.splitlines() if line.strip() and line[0] != "#"), "")
    looks = re.match(r"\s*(\[[\w.\"]+\]\s*(#.*)?$|[\w.\"]+\s+=\s)", first)
    if not looks and (forced is None or "--" in text):
        return None
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError: a number too long, too
        line = re.search(r"line (\d+)", str(error))
        raise InputError(
            f"not readable as TOML: {error}", path=path, line=int(line[1]) if line else None,
            allowed="a TOML document",
        ) from None  # fmt: skip
    return _of_keys("torchtitan-toml", path, _flat(document), lambda key: _line_of_toml(text, key))


def _line_of_toml(text: str, key: str) -> int | None:
    table, _, name = key.rpartition(".")
    head = re.search(rf"^\s*\[{re.escape(table)}\]", text, re.MULTILINE)
    start = head.end() if head else 0
    found = re.compile(rf"^\s*{re.escape(name)}\s*=", re.MULTILINE).search(text, start)
    if found is None:
        return None
    return text.count("\n", 0, found.end() - 1) + 1


def _yaml(text: str, path: str, forced: str | None) -> Launch | None:
    if forced not in (None, "accelerate"):
        return None
    lines = (line for line in text.splitlines() if line.strip() not in ("", "---"))
    first = next((line for line in lines if not line.lstrip().startswith("#")), "")
    if forced is None and not re.match(r"[A-Za-z_][\w.]*:(\s|$)", first):
        return None
    root = read_yaml(text, path)
    if not isinstance(root.value, Mapping):
        raise InputError("is no mapping", path=path, allowed=NAMED)
    return _of_tree("accelerate", path, root)


def _of_tree(name: str, path: str, root: Node) -> Launch:
    places: dict[str, int | None] = {}
    _places(root, places)
    return _of_keys(name, path, _flat(root.plain()), places.get)


def _places(node: Node, found: dict[str, int | None]) -> None:
    found[node.key] = node.line
    if isinstance(node.value, Mapping):
        for child in node.value.values():
            _places(child, found)


def _flat(document: Any, around: str = "") -> dict[str, Any]:
    """Dotted keys to values; lists stay whole."""
    if not isinstance(document, Mapping):
        return {around: document} if around else {}
    found: dict[str, Any] = {}
    for name, value in document.items():
        found |= _flat(value, f"{around}.{name}" if around else str(name))
    return found


def _of_keys(name: str, path: str, values: Mapping[str, Any], line: Any) -> Launch:
    known = known_settings(name)
    settings = {
        key: Setting(key, value, line(key)) for key, value in values.items()
        if key in known and value is not None and value != "auto"
    }  # fmt: skip
    if not settings:
        raise InputError(f"nothing in it is known of {name}", path=path, allowed=NAMED)
    ignored = [
        Note(key, _unknown(key, known), line(key)) for key in values if key not in known
    ] + [
        Note(key, "is auto: the program's", line(key)) for key, value in values.items()
        if key in known and value == "auto"
    ]  # fmt: skip
    total = settings.get("num_processes")
    count = Count()
    if name == "accelerate" and total is not None:
        launch = Launch(name, path, settings)
        count = Count(total=launch.whole("num_processes"), settings=("num_processes",),
                      line=total.line)  # fmt: skip
    return Launch(name, path, settings, count, tuple(ignored))


def _unknown(name: str, known: Mapping[str, str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, known, n=1, cutoff=0.9)
    return f"is not read; did you mean '{near[0]}'?" if near else "is not read"


# ---------------------------------------------------------------- shell


def _shell(text: str, path: str, forced: str | None, variables: Mapping[str, str]) -> Launch:
    script = read_shell(text, path, variables)
    kinds = [forced] if forced is not None else list(SHELL)
    jobs = {kind: _jobs(script, kind) for kind in kinds if kind in SHELL}
    kind = max(jobs, key=lambda k: max((_score(job, k) for job in jobs[k]), default=0), default="")
    if not kind or not jobs[kind]:
        raise InputError(
            f"nothing in it is known of {' or '.join(kinds)}", path=path, allowed=NAMED,
        )  # fmt: skip
    launches = [_launch(job, kind, path, script) for job in jobs[kind]]
    written = [
        Note(name, "stands in a here-document, which is not read", line)
        for line, body in script.documents for name in known_settings(kind) if f"{name} " in body
    ]  # fmt: skip
    first = replace(launches[0], unread=(*launches[0].unread, *written))
    for other in launches[1:]:
        if _values(other) != _values(first):
            lines = " and ".join(str(min(w.line for w in job)) for job in jobs[kind])
            raise InputError(
                "it starts jobs with different settings", path=path, line=jobs[kind][1][0].line,
                value=lines, allowed=f"one job; give one of those on lines {lines} alone",
            )  # fmt: skip
    return first


def _values(launch: Launch) -> dict[str, Any]:
    return {name: setting.value for name, setting in launch.settings.items()}


def _score(words: Sequence[Word], kind: str) -> int:
    known = known_settings(kind)
    return sum(_flag(word, kind) in known for word in words)


def _jobs(script: Script, kind: str) -> list[tuple[Word, ...]]:
    """Commands with settings of the target; without any, the arrays and texts that have them."""
    found = [
        words for words in script.commands
        if _score(words, kind) and (len(words) > 1 or words[0].text.startswith("-"))
    ]  # fmt: skip
    started = [words for words in found if not words[0].text.startswith("-")]
    if started:
        return started
    if found:  # a file of arguments, some on each line
        bare = [words for words in script.commands if words[0].text.startswith("-")]
        return [tuple(word for words in bare for word in words)]
    arrays = [words for words in script.arrays.values() if _score(words, kind)]
    return [tuple(word for words in arrays for word in words)] if arrays else []


def _flag(word: Word, kind: str) -> str | None:
    """The setting that a word names, as the target's table writes it."""
    text = word.prefix
    if kind == "torchtitan" and text.startswith("activation-checkpoint:"):
        return "activation-checkpoint"
    if not text.startswith("--") or len(text) < 3:
        return None
    name, equals, _ = text.partition("=")
    if word.why is not None and not equals and word.known < len(word.text) and word.known:
        return None  # a name put together from what is not known
    if kind == "megatron":
        return name
    section, dot, rest = name.removeprefix("--").rpartition(".")
    name = f"{section}{dot}{rest.replace('-', '_')}"
    return f"--{name}" if kind == "torchtitan" else name


def _launch(words: Sequence[Word], kind: str, path: str, script: Script) -> Launch:
    known = known_settings(kind)
    settings: dict[str, Setting] = {}
    ignored: list[Note] = []
    unread: list[Note] = [
        Note(word.text, "is another file, which is not read", word.line) for word in script.sourced
    ]
    missing: list[Note] = []
    at = 0
    while at < len(words):
        word = words[at]
        name = _flag(word, kind)
        at += 1
        values: list[Word] = []
        while at < len(words) and not words[at].text.startswith("--") and (
            _flag(words[at], kind) is None
        ):  # fmt: skip
            values.append(words[at])
            at += 1
        whole = word.text.startswith("--") and "=" not in word.text and word.known == 0
        if name is None or (word.why and whole):
            unread += _unread([word, *values], known, kind)
        elif name not in known:
            if name.replace("_", "-") not in LAUNCHER:
                ignored.append(Note(name, _unknown(name, known), word.line))
        elif found := _setting(name, known[name], word, values):
            settings[name] = found
        else:
            bad = next((w for w in [word, *values] if w.why), word)
            missing.append(Note(name, bad.why or "has no value", bad.line))
    if missing:
        raise _no_value(missing[0], path)
    return Launch(
        kind, path, settings, count_of(words, script), tuple(ignored), tuple(_once(unread))
    )


def _no_value(note: Note, path: str) -> InputError:
    return InputError(
        f"its value is not known: {note.text}", path=path, line=note.line, key=note.subject,
        allowed="a value in the script, or --env NAME=VALUE for a variable",
    )  # fmt: skip


def _once(notes: Sequence[Note]) -> list[Note]:
    return list(dict.fromkeys(notes))


def _unread(words: Sequence[Word], known: Mapping[str, str], kind: str) -> list[Note]:
    """Words that are not known and may hold settings: those that only a branch adds, outputs."""
    first, *values = words
    if _flag(replace(first, why=None), kind) in known:
        return [Note(" ".join(word.text for word in words), first.why or "", first.line)]
    return [
        Note(word.text, word.why, word.line)
        for word in [*([] if first.text.startswith("--") else [first]), *values]
        if word.why is not None
    ]


def _setting(name: str, kind: str, word: Word, values: Sequence[Word]) -> Setting | None:
    """The setting with its value; None where that is not known."""
    _, equals, text = word.text.partition("=")
    if name == "activation-checkpoint":
        return Setting(name, word.text.partition(":")[2], word.line, word.outside)
    if equals:
        return None if word.why else Setting(name, text, word.line, word.outside)
    if kind == "switch":
        given = values[0].text.lower() if values else ""
        value: Any = given if given in ("true", "false") else True
        return Setting(name, value, word.line, word.outside)
    taken = values if kind == "many" else values[:1]
    if not taken or any(value.why for value in taken):
        return None
    if kind == "many":
        return Setting(name, [value.text for value in taken], word.line)
    return Setting(name, taken[0].text, word.line, taken[0].outside)
