"""Damaged and hostile scripts: an answer or one of our errors, soon, and nothing run."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import planner
from planner.errors import PlannerError
from planner.report.text.check import check_report
from planner.report.text.pieces import plain_text

FOLDER = Path(__file__).parent.parent / "data" / "launch"
TEXTS = [path.read_text("utf-8") for path in sorted(FOLDER.iterdir())]
GIVEN = planner.load_scenario(
    "llama3-8b-h100x8", {"topology": "dgx-h100", "training.global_batch_size": "128"}
)
NASTY = st.sampled_from(
    ["$(touch {})", "`touch {}`", "'", '"', "\\", "\n", "\r", "\0", "${", "$((", "))", "(", ")",
     "=", "--", " 0 ", " -1 ", " 99999999999999999999 ", " 1e9 ", " nan ", "*", "é", "\u2028",
     "\ud7ff", "<<EOF\n", "#", "%", "{}", "null", "[", "]", ": ", "- ", "&a ", "*a ",
     "!!python/object:os.x ",
     "true", "false", "--tensor-model-parallel-size ", "--pipeline-model-parallel-layout ",
     "(t*9999|)*9999", "--moe-layer-freq ", "([0]*9999+[1]*9999)*9999", "--num-experts "]
)  # fmt: skip


@st.composite
def damaged(draw):
    """A script with pieces cut out, doubled or put in."""
    text = draw(st.sampled_from(TEXTS))
    for _ in range(draw(st.integers(1, 5))):
        start = draw(st.integers(0, len(text)))
        end = min(start + draw(st.integers(0, 30)), len(text))
        kind = draw(st.sampled_from(("cut", "double", "put")))
        piece = {"cut": "", "double": text[start:end] * 2}.get(kind)
        piece = draw(NASTY) if piece is None else piece
        text = text[:start] + piece + text[(end if kind != "put" else start) :]
    return text


pytestmark = pytest.mark.usefixtures("no_search")


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(damaged())
def test_a_damaged_script_is_answered_or_refused(tmp_path_factory, text):
    made = tmp_path_factory.getbasetemp() / "made"
    started = time.process_time()
    try:
        found = planner.check(text.replace("touch {}", f"touch {made}"), GIVEN, "job.sh")
        assert found.verdict in ("fits", "fragile", "no", "illegal")
        found.to_document()
        plain_text(check_report(found), 80)
    except PlannerError as error:
        assert str(error) and "\n" not in str(error)
    assert time.process_time() - started < 10 and not made.exists()


HOSTILE = {
    "names": "torchrun 'p; rm -rf ~' --micro-batch-size 1 --global-batch-size 128 --bf16 "
    "--data-path '$(touch {})' --save `touch {}`",
    "escape": "--micro-batch-size 1 --global-batch-size 128 --bf16 --x '\x1b[31m'",
    "long word": "--bf16 --micro-batch-size 1 --global-batch-size 128 --" + "x" * 100_000,
    "many flags": "--bf16 --micro-batch-size 1 --global-batch-size 128 " + "--lr 1 " * 20_000,
    "layout bomb": "--bf16 --micro-batch-size 1 --global-batch-size 128 "
    "--pipeline-model-parallel-size 8 --pipeline-model-parallel-layout '"
    + "(t*999|)*999" * 99 + "'",
    "nested repeats": "--bf16 --micro-batch-size 1 --pipeline-model-parallel-size 8 "
    "--pipeline-model-parallel-layout '" + "(" * 40 + "t|" + ")*9" * 40 + "'",
    "experts": "--bf16 --micro-batch-size 1 --num-experts 8 --moe-layer-freq '" + "(" * 50 + "[1]"
    + ")*9" * 50 + "'",
    "deep json": '{"a":' * 3000 + "1" + "}" * 3000,
    "alias bomb": "fsdp_config: &a {x: 1}\nb: &b [*a, *a]\nc: &c [*b, *b]\nd: [*c, *c]\n",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_texts(name, tmp_path):
    made = tmp_path / "made"
    started = time.process_time()
    try:
        found = planner.check(HOSTILE[name].replace("touch {}", f"touch {made}"), GIVEN)
        assert "\x1b" not in plain_text(check_report(found), 80)
    except PlannerError as error:
        assert str(error)
    assert time.process_time() - started < 10 and not made.exists()
