"""The shell reader against bash itself, and on what it must not guess."""

from __future__ import annotations

import subprocess
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import InputError
from planner.frameworks.shell.expand import read_shell

SHOW = "show() { (( $# == 0 )) || printf '%s\\0' \"$@\"; }\n"


def words(text, **variables):
    """Words of the last command."""
    return [word.text for word in read_shell(text, "job.sh", variables).commands[-1]]


def by_bash(text):
    """Arguments that bash itself would pass to `show`."""
    done = subprocess.run(
        ["bash", "--norc", "-c", SHOW + text], capture_output=True, text=True, check=True, env={},
        timeout=20,
    )  # fmt: skip
    return done.stdout.split("\0")[:-1]


CASES = {
    "plain": "show --tp 8 --pp=4",
    "continued": "show --tp 8 \\\n  --pp 4 \\\n  --mbs 1",
    "comments": "# --tp 4\nshow --tp 8 # --tp 2\n",
    "variables": "TP=8\nPP=${TP}\nshow --tp $TP --pp ${PP} --x a$TP.b",
    "defaults": "B=\nshow ${A:-8} ${A-7} ${B:-6} x${B-5}y ${C:-${D:-3}}",
    "assigned default": ": ${A:=8}\nshow $A",
    "array": 'A=(\n  --tp 8  # tensor\n  --pp 4\n)\nshow "${A[@]}" ${A[@]} last',
    "array grows": 'A=(--tp 8)\nA+=(--pp 4)\nB=("${A[@]}" --cp 2)\nshow "${B[@]}"',
    "joined array": 'A=(--tp 8)\nshow "${A[*]}"',
    "first element": 'A=(x)\nshow "pre${A[@]}post"',
    "text of arguments": 'A="\n --tp 8 \\\n --pp 4\n"\nshow $A',
    "text grows": 'A="--tp 8"\nA="$A --pp 4"\nA+=" --cp 2"\nshow $A',
    "quotes": "A='a $B \"c\"'\nshow \"$A\" 'x y' \"p\\\"q\" a\\ b",
    "empty words": "A=\nshow \"\" '' $A \"$A\" end",
    "command before": "mkdir -p /tmp && show --tp 8",
    "prefix": "CUDA_DEVICE_MAX_CONNECTIONS=1 show --tp 8",
    "exported": "export TP=8 PP=4\nreadonly CP=2\ndeclare -a A=(1 2)\nshow $TP $PP $CP ${A[@]}",
    "redirected": "show --tp 8 2>&1 > /dev/stdout",
    "eval": 'CMD="show --tp 8"\neval $CMD',
    "command in a variable": 'CMD="show --tp 8"\n$CMD --pp 4',
    "windows lines": "TP=8\r\nshow --tp $TP\r\n".replace("\r", ""),
    "brackets": "if [[ 1 == 1 && 2 == 2 ]]; then :; fi\nshow --tp 8",
    "here document": "cat > /dev/null <<EOF\nshow --tp 2\nEOF\nshow --tp 8",
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_words_are_those_of_bash(name):
    text = CASES[name]
    found = words(text)
    if "show" in found and found[0] != "show":
        found = found[found.index("show") :]
    redirected = found.index("2") if name == "redirected" and "2" in found else len(found)
    assert found[1:redirected] == by_bash(text), text


NAMES = ("A", "B", "C")
TEXT = st.text(alphabet="ab8-= .,:/%@", max_size=6)
EXPANSION = st.sampled_from(["${A}", "${B}", "${C:-x y}", "${A-7}", "${B:-}", "${C:-${A:-1}}"])
QUOTED = st.builds('"{}{}{}"'.format, TEXT, EXPANSION, TEXT)
SINGLE = st.builds("'{}'".format, TEXT)
BARE = st.text(alphabet="ab8-.,:/%@", min_size=1, max_size=6)
PIECES = st.one_of(BARE, EXPANSION, QUOTED, SINGLE, st.just("\\ "))
WORD = st.lists(PIECES, min_size=1, max_size=3).map("".join)
WORDS = st.lists(WORD, max_size=4).map(" ".join)
LINE = st.one_of(
    st.builds("{}={}".format, st.sampled_from(NAMES), st.one_of(BARE, QUOTED, SINGLE)),
    st.builds("{}+={}".format, st.sampled_from(NAMES), st.one_of(BARE, QUOTED)),
    st.builds("{}=({})".format, st.sampled_from(("P", "Q")), WORDS),
    st.builds("{}+=(\n{}  # more\n)".format, st.sampled_from(("P", "Q")), WORDS),
)
LAST = st.lists(
    st.one_of(WORD, st.sampled_from(['"${P[@]}"', "${Q[@]}", '"x${P[@]}"', '"${P[*]}"'])),
    max_size=5,
).map(" \\\n  ".join)


@settings(max_examples=120, deadline=None)
@given(st.lists(LINE, max_size=6), LAST)
def test_scripts_of_the_subset_expand_as_in_bash(lines, last):
    text = "\n".join(["A= B= C= P=() Q=()", *lines, f"show {last}"])
    text = text.replace("A= B= C= P=() Q=()", "A=\nB=\nC=\nP=()\nQ=()")
    script = read_shell(text, "job.sh")
    assert [word.text for word in script.commands[-1][1:]] == by_bash(text)
    assert all(word.why is None for word in script.commands[-1])


UNKNOWN = {
    "$(nproc)": "command substitution is not read",
    "`nproc`": "command substitution is not read",
    "$((8 * 2))": "arithmetic is not read",
    "$NNODES": "$NNODES is not set in the script",
    "$1": "$1 comes from outside",
    "${A%.sh}": "this expansion is not read",
    "${#A}": "this expansion is not read",
    "${!A}": "this expansion is not read",
    "$'\\x41'": "an escaped string is not read",
}


@pytest.mark.parametrize("text", UNKNOWN)
@pytest.mark.parametrize(
    "shape", ["show --tp {}", 'X="{}"\nshow --tp $X', 'A=(--tp {})\nshow "${{A[@]}}"']
)
def test_what_is_not_read_is_named_with_its_line_and_never_guessed(text, shape):
    word = read_shell("\n" + shape.format(text), "job.sh").commands[-1][-1]
    expected = UNKNOWN[text]
    if text == "$'\\x41'" and shape.startswith("X"):
        return  # within double quotes it is plain text
    assert word.why == expected and word.line == 2


BRANCHES = {
    "if": 'TP=8\nif [ "$X" = 1 ]; then\n  TP=4\nfi\nshow $TP',
    "else": "if true; then TP=8; else TP=4; fi\nshow $TP",
    "for": "for TP in 1 2 4; do :; done\nshow $TP",
    "case": "TP=8\ncase $X in\n a) TP=4 ;;\nesac\nshow $TP",
    "function": "TP=8\nset_it() { TP=4; }\nshow $TP",
    "and": 'TP=8\n[ -n "$X" ] && TP=4\nshow $TP',
    "read": "TP=8\nread TP\nshow $TP",
    "arithmetic": "TP=8\n(( TP *= 2 ))\nshow $TP",
    "element": "TP=(8)\nTP[0]=4\nshow ${TP[@]}",
    "unset": "TP=8\nunset TP\nshow $TP",
}


@pytest.mark.parametrize("name", BRANCHES)
def test_a_variable_that_a_branch_changes_is_not_known(name):
    words_ = read_shell(BRANCHES[name], "job.sh").commands[-1]
    assert words_[0].text == "show" and words_[-1].why


def test_a_branch_that_changes_nothing_leaves_it_known():
    assert words("TP=8\nif true; then TP=8; fi\nshow $TP") == ["show", "8"]
    assert words("TP=8\nif true; then PP=8; fi\nshow $TP") == ["show", "8"]


def test_what_a_branch_adds_is_told_apart_from_what_is_always_there():
    text = 'A=(--tp 8)\nif [ $F ]; then\n  A+=(--fp8-format hybrid)\nfi\nshow "${A[@]}"'
    last = read_shell(text, "job.sh").commands[-1]
    assert [w.why is None for w in last] == [True, True, True, False, False]
    assert last[3].line == 3 and "only in some cases" in last[3].why


def test_values_from_outside_win_over_the_script():
    text = "TP=${TP:-8}\nif true; then TP=2; fi\nshow $TP $NNODES"
    assert words(text, TP="4", NNODES="16") == ["show", "4", "16"]


def test_a_default_of_the_environment_is_marked():
    last = read_shell("TP=${TP:-8}\nPP=4\nshow $TP $PP", "job.sh").commands[-1]
    assert [word.overridable for word in last] == [False, True, False]


def test_lines_are_those_of_the_values():
    text = '#!/bin/bash\n\nA="\n  --tp 8\n  --pp 4\n"\nB=(\n --cp 2\n)\nshow $A "${B[@]}"'
    assert [w.line for w in read_shell(text, "j").commands[-1]] == [10, 4, 4, 5, 5, 8, 8]


def test_scripts_in_scripts_are_read():
    text = "TP=8\nsrun --nodes 2 bash -c 'torchrun train.py --tp '$TP"
    commands = [[w.text for w in c] for c in read_shell(text, "j").commands]
    assert ["torchrun", "train.py", "--tp", "8"] in commands


def test_slurm_options_are_read_and_other_comments_are_not():
    head = "#!/bin/bash\n#SBATCH --nodes=16 # hosts\n# SBATCH --nodes=8\n#SBATCH -n 4\n"
    text = head + "true\n#SBATCH --nodes=2"
    assert [w.text for w in read_shell(text, "j").options] == ["--nodes=16", "-n", "4"]


def test_nothing_is_run(tmp_path):
    made = tmp_path / "made"
    text = f"$(touch {made})\n`touch {made}`\nA=$(touch {made})\neval 'touch {made}'\nshow $A"
    read_shell(text, "job.sh")
    assert not made.exists()


def test_text_that_doubles_itself_is_refused_at_once():
    text = "A=aaaaaaaa\n" + "A=$A$A\n" * 64 + "show $A"
    started = time.process_time()
    with pytest.raises(InputError, match="too much text"):
        read_shell(text, "job.sh")
    assert time.process_time() - started < 5


DEEP = ("${A:-" * 5000, "$(" * 20000, '"' * 9999, "A=(" * 5000, "<<E\n" * 500, "if " * 5000,
        "bash -c 'eval \"" * 500, "\\" * 9999, "((" * 9999)  # fmt: skip


@pytest.mark.parametrize("text", DEEP)
def test_deep_and_unclosed_texts_end_quickly(text):
    started = time.process_time()
    read_shell(text, "job.sh")
    assert time.process_time() - started < 5


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet="A=$(){}[]\"'`\\;&|<># \n-8@*:+?!", max_size=60))
def test_no_text_makes_it_fail(text):
    read_shell(text, "job.sh")
