"""The program: help, errors as one paragraph, exit codes, interrupts, pipes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time

import pytest

from planner import api
from planner.layouts.keys import KEYS
from tests.cli.running import SMALL, fails, run

# ---------------------------------------------------------------- help and start


def test_version_and_help():
    assert run("--version").stdout.startswith("planner, version ")
    for command in ("plan", "evaluate", "compare", "list", "schema", "validate", "export"):
        assert command in run("--help").stdout
        assert run(command, "-h").exit_code == 0


@pytest.mark.parametrize("command", [(), ("validate",)])
def test_a_group_without_a_command_shows_its_help(command):
    result = run(*command)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == run(*command, "--help").stdout


def test_help_of_evaluate_explains_every_key_of_a_layout():
    text = " ".join(run("evaluate", "--help").stdout.split())
    for key in KEYS.values():
        assert f" {key.name} {key.meaning}: {key.allowed}; " in text
    assert "offload what lives in the host's memory: none, optimizer" in text


def test_help_loads_nothing_heavy():
    heavy = ("numpy", "pydantic", "ortools", "rich", "pint", "ruamel", "planner.api")
    script = (
        "import sys\nfrom planner.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        f"loaded = [name for name in {heavy!r} if name in sys.modules]\n"
        "sys.exit(', '.join(loaded) or 0)"
    )
    started = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert time.perf_counter() - started < 2  # 0.1 s when the machine is not loaded


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["plam", SMALL], "did you mean 'plan'"),
        (["plan"], "SCENARIO"),
        (["plan", SMALL, "--jsn"], "--json"),
        (["plan", "llama3-8b-h100x9"], "did you mean 'llama3-8b-h100x8'"),
        (["plan", "missing.yaml"], "missing.yaml"),
        (["plan", SMALL, "--set", "training"], "KEY=VALUE"),
        (["plan", SMALL, "--set", "training.sequence_lenght=1"], "did you mean"),
        (["plan", SMALL, "--set", "num_accelerators=-4"], "num_accelerators"),
        (["plan", SMALL, "--set", "num_accelerators=999999"], "dgx-h100"),
        (["plan", SMALL, "--top", "0"], "--top"),
        (["plan", SMALL, "--top", "many"], "--top"),
        (["plan", SMALL, "--time-limit", "0"], "--time-limit"),
        (["plan", SMALL, "--time-limit", "nan"], "--time-limit"),
        (["plan", SMALL, "--time-limit", "inf"], "--time-limit"),
        (["evaluate", SMALL], "--layouts"),
        (["evaluate", SMALL, "--layout", "tp=2", "--layouts", "x.csv"], "--layouts"),
        (["evaluate", SMALL, "--layout", "zero_stag=2"], "did you mean 'zero_stage'"),
        (["evaluate", SMALL, "--layout", "tp"], "tp"),
        (["evaluate", SMALL, "--layouts", "missing.csv"], "missing.csv"),
        (["compare", "a.json", "b.json"], "a.json"),
        (["list", "model"], "did you mean 'models'"),
        (["schema", "topologie"], "did you mean 'topology'"),
        (["validate", "rnus"], "did you mean 'runs'"),
        (["export", "a.json", "--target", "megatron", "--out", "x"], "a.json"),
        (["export", "a.json", "--target", "megatron"], "--out"),
    ],
)
def test_bad_input_is_one_paragraph_and_exit_2(args, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert said in fails(run(*args))


def test_paths_after_set_are_sought_in_the_current_folder(tmp_path, monkeypatch):
    (tmp_path / "sub").mkdir()
    scenario = "model: llama3-8b\ntopology: dgx-h100\nnum_accelerators: 8\ntraining: {\n"
    scenario += (
        "  sequence_length: 8192, global_batch_size: 128, precision: bf16, optimizer: adam}\n"
    )
    (tmp_path / "sub" / "s.yaml").write_text(scenario)
    (tmp_path / "sub" / "t.yaml").write_text("name: the wrong one\n")
    (tmp_path / "t.yaml").write_text("name: the right one\n")
    monkeypatch.chdir(tmp_path)
    assert "t.yaml" in (said := fails(run("plan", "sub/s.yaml", "--set", "topology=./t.yaml")))
    assert "sub/t.yaml" not in said


def test_a_key_is_set_once():
    said = fails(run("plan", SMALL, "--set", "search.tp=2", "--set", "search.tp=4"))
    assert "search.tp is set twice" in said


def test_absurd_numbers_are_answered_at_once():
    start = time.monotonic()
    assert "nearest legal: mbs=" in fails(run("evaluate", SMALL, "--layout", "mbs=999999999"))
    assert "<= 1024" in fails(run("plan", SMALL, "--set", "model.num_layers=1000000000000"))
    assert time.monotonic() - start < 5


def test_other_versions_of_yaml_are_refused(tmp_path):
    path = tmp_path / "s.yaml"
    path.write_text("%YAML 1.1\n---\nmodel: llama3-8b\n")
    assert ":1:1: " in fails(run("plan", path))


@pytest.mark.slow
@pytest.mark.parametrize("shell", ["{} >&-", "{} >/dev/full", "PYTHONIOENCODING=latin-1 {}"])
def test_outputs_that_cannot_take_it_end_without_a_traceback(shell):
    command = f"{sys.executable} -c 'from planner.cli import main; main()' evaluate {SMALL}"
    command += " --layout tp=2"
    done = subprocess.run(["bash", "-c", shell.format(command)], capture_output=True, check=False)
    assert b"Traceback" not in done.stderr
    assert done.returncode in (0, 2)


# ---------------------------------------------------------------- ends


def test_interrupt_is_130_and_quiet(monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(api, "plan", interrupted)
    result = run("plan", SMALL)
    assert result.exit_code == 130
    assert "Traceback" not in result.output


def test_a_bug_is_not_dressed_up_as_the_users_mistake(monkeypatch):
    monkeypatch.setattr(api, "plan", lambda *_: 1 / 0)
    assert isinstance(run("plan", SMALL).exception, ZeroDivisionError)


@pytest.mark.skipif(os.name != "posix", reason="closed pipes are a thing of posix")
def test_a_closed_pipe_is_quiet():
    command = (
        f"{sys.executable} -c 'from planner.cli import main; main()' list topologies | head -n 0"
    )
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.stderr == ""


def test_colours_only_on_terminals(planned, monkeypatch):
    script = "from planner.cli import main; main()"
    plain = subprocess.run(
        [sys.executable, "-c", script, "list", "models"], capture_output=True, text=True
    ).stdout
    forced = subprocess.run(
        [sys.executable, "-c", script, "list", "models"], capture_output=True, text=True,
        env={**os.environ, "FORCE_COLOR": "1", "NO_COLOR": "1"},
    ).stdout  # fmt: skip
    assert "\x1b" not in plain
    assert not re.search(r"\x1b\[(3|9)\d", forced)  # bold may be, colours not
