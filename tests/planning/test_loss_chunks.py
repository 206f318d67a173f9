"""A loss in chunks, planned, evaluated, written for torchtitan and read back from it."""

from __future__ import annotations

import pytest

import planner
from planner import api
from planner.errors import ExportError, IllegalLayoutError
from planner.planning.export import export_plan
from planner.planning.plan import Plan
from planner.report.text.pieces import plain_text
from planner.report.text.plan import plan_report

NAME = "llama3-8b-torchtitan-h100x64"
FLAGS = (
    "--module llama3 --config llama3_8b --parallelism.data_parallel_shard_degree 64 "
    "--training.local_batch_size 1 --training.global_batch_size 256 --training.seq_len 8192 "
    "--compile.enable"
)


def evaluated(text: str) -> Plan:
    return api.evaluate(NAME, f"mbs=2,zero_stage=3,{text}")


def test_memory_of_the_logits_is_traded_for_thinner_matmuls() -> None:
    whole, chunked = evaluated("loss_chunks=1"), evaluated("loss_chunks=8")
    assert whole.memory is not None and chunked.memory is not None
    tokens, vocabulary, hidden = 2 * 8192, 128_256, 4096
    logits = tokens * vocabulary * 16
    assert whole.memory.terms["logits"] == pytest.approx(logits)
    assert chunked.memory.terms["logits"] == pytest.approx(logits / 8 + tokens * hidden * 4)
    assert whole.time is not None and chunked.time is not None
    assert (
        whole.time["compute_gemm"]
        < chunked.time["compute_gemm"]
        < 1.02 * whole.time["compute_gemm"]
    )
    assert whole.time["loss"] == chunked.time["loss"]


def test_the_report_and_the_plan_file_name_it() -> None:
    chunked = evaluated("loss_chunks=8")
    assert "loss in 8 chunks" in plain_text(plan_report(chunked), 120)
    assert "loss in" not in plain_text(plan_report(evaluated("loss_chunks=1")), 120)
    document = chunked.to_document()
    assert document["layout"]["loss_chunks"] == 8
    assert Plan.from_document(document) == chunked
    assert chunked.layout is not None and "loss_chunks=8" in chunked.layout.label()


def test_searched_only_where_listed_and_then_the_best_of_all() -> None:
    """Of several counts the search finds what searching each alone finds."""
    sizes = {"search.mbs": [2], "search.recompute": ["none"], "search.tie_fraction": 0}
    alone = {
        chunks: api.plan(api.load_scenario(NAME, {**sizes, "search.loss_chunks": [chunks]}))
        for chunks in (1, 2, 8)
    }
    unlisted = api.plan(api.load_scenario(NAME, sizes))
    assert unlisted.step_seconds == alone[1].step_seconds
    together = api.plan(api.load_scenario(NAME, {**sizes, "search.loss_chunks": [1, 2, 8]}))
    best = min(found.step_seconds for found in alone.values() if found.step_seconds is not None)
    assert together.step_seconds == pytest.approx(best, rel=1e-12)
    assert together.status == "optimal"


def test_software_without_it_refuses_it() -> None:
    with pytest.raises(IllegalLayoutError, match="no-loss-chunks"):
        api.evaluate("llama3-8b-h100x8", "mbs=1,loss_chunks=8")
    with pytest.raises(IllegalLayoutError, match=r"loss-chunks-divide.*loss_chunks=4"):
        api.evaluate(NAME, "mbs=1,loss_chunks=5")


def test_torchtitan_is_told_and_its_older_version_is_not() -> None:
    given = api.load_scenario(NAME, {"search.loss_chunks": [8], "search.orders": "framework"})
    plan = api.plan(given)
    assert "--loss.num_chunks 8" in export_plan(plan, "torchtitan")["torchtitan-args.sh"]
    with pytest.raises(
        ExportError, match=r"loss_chunks 8 is not expressible in torchtitan 0\.2\.2"
    ):
        export_plan(plan, "torchtitan-toml")


@pytest.mark.parametrize(("flags", "chunks"), [("", 8), (" --loss.num_chunks 2", 2)])
def test_check_reads_it_and_its_default(flags: str, chunks: int) -> None:
    found = planner.check(FLAGS + flags, NAME, target="torchtitan")
    assert found.plan is not None and found.plan.layout is not None
    assert found.plan.layout.loss_chunks == chunks
