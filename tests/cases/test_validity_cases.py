"""What users found invalid too late, by the ids of their cases: what planner plans and writes.

What it says of given layouts and scripts under the same ids: tests/advise/test_why_not.py and
tests/advise/test_check_cases.py.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from planner import api
from planner.cost.context import CostContext
from planner.errors import IllegalLayoutError
from planner.planning.export import export_plan
from planner.planning.plan import Plan
from planner.problem.batch import Band
from planner.problem.scenario import Scenario, Search
from planner.search.space.enumerate import layouts
from tests.expert_scenarios import shipped_scenario
from tests.scenarios import small_model, small_scenario, small_software, small_training


def job(model: str, num: int, **more: str) -> Scenario:
    changes = {
        "model": model, "topology": "dgx-h100", "num_accelerators": str(num),
        "training.sequence_length": "2048", "training.global_batch_size": "128",
    }  # fmt: skip
    return api.load_scenario("llama3-8b-h100x8", changes | more)


def megatron_flags(plan: Plan) -> dict[str, str]:
    text = export_plan(plan, "megatron")["megatron-args.sh"]
    lines = (line.strip() for line in text.splitlines())
    pairs = (line.partition(" ") for line in lines if line.startswith("--"))
    return {flag: value.strip("'") for flag, _, value in pairs}


# --- val-01: NVIDIA-NeMo/Megatron-Bridge#6054 -----------------------------------------------------


def test_val_01_no_layout_needs_more_ranks_than_there_are() -> None:
    """Of all layouts of 128 experts on 64 ranks, etp·ep·pp divides 64: 8·32 = 256 is none."""
    given = shipped_scenario("qwen3-235b-a22b", "gb200-nvl72", 64)
    table, _ = layouts(CostContext.of(given), Search(mbs=(1,), cp=(1,)), prune=False)
    needed = table.etp * table.ep * table.pp
    assert len(table) and not np.any(64 % needed)
    pairs = set(zip(table.pp.tolist(), table.ep.tolist(), strict=True))
    assert {(8, 8), (2, 32)} <= pairs and not {(8, 32), (4, 32)} & pairs


# --- val-03: NVIDIA-NeMo/Speech#14838, NVIDIA-NeMo/Megatron-Bridge#546 ----------------------------


@pytest.mark.parametrize(("tp", "pp", "ep", "etp"), [(1, 2, 2, 1), (4, 1, 4, 1), (4, 1, 2, 2)])
def test_val_03_expert_tensor_parallelism_is_always_written(
    tp: int, pp: int, ep: int, etp: int
) -> None:
    """Unset, Megatron would take it from tp: 4·4 = 16 ranks where there are 4."""
    given = job("qwen3-30b-a3b", 4, **{"model.num_layers": "8"})
    plan = api.evaluate(given, f"tp={tp},pp={pp},ep={ep},etp={etp},mbs=1,recompute=full")
    flags = megatron_flags(plan)
    assert flags["--expert-tensor-parallel-size"] == str(etp)
    assert flags["--expert-model-parallel-size"] == str(ep)
    assert plan.layout is not None
    assert plan.layout.edp * etp * ep * pp == 4


# --- val-07: NVIDIA/Megatron-LM#1304 --------------------------------------------------------------


def written_layers(flags: dict[str, str]) -> list[int]:
    """Layers of each stage in the text of Megatron's pipeline layout."""
    text = flags["--pipeline-model-parallel-layout"]
    text = re.sub(r"\(([^()]*)\)\*(\d+)", lambda m: m[1] * int(m[2]), text)
    text = re.sub(r"t\*(\d+)", lambda m: "t" * int(m[1]), text)
    return [stage.count("t") for stage in text.split("|")]


def test_val_07_thirty_layers_on_four_stages_are_thirty() -> None:
    given = job("llama3-8b", 8, **{"model.num_layers": "30"})
    plan = api.plan(given.replace(search=Search(pp=(4,), vp=(1,), mbs=(1,))), 1)
    found = written_layers(megatron_flags(plan))
    assert len(found) == 4 and sum(found) == 30 and max(found) - min(found) <= 2
    flags = megatron_flags(api.evaluate(given, "pp=4,tp=2,mbs=1,stage_layers=7+8+8+7"))
    assert written_layers(flags) == [7, 8, 8, 7]
    with pytest.raises(IllegalLayoutError) as caught:  # what was silently built
        api.evaluate(given, "pp=4,tp=2,mbs=1,stage_layers=7+7+7+7")
    assert caught.value.rule == "stage-layers" and "sum to 30 layers" in str(caught.value)


def test_val_07_where_stages_must_be_even_four_is_no_choice() -> None:
    software = small_software(rules=("stages-even",))
    given = small_scenario(8, model=small_model(num_layers=30), software=software)
    table, _ = layouts(CostContext.of(given), Search(mbs=(1,)), prune=False)
    assert 2 in table.pp and not np.any(30 % (table.pp * table.vp))


# --- val-10: pytorch/torchtitan#775, #784 ---------------------------------------------------------


@pytest.mark.parametrize(("pp", "mbs"), [(2, 1), (4, 1), (4, 2), (8, 1)])
def test_val_10_torchtitan_gets_whole_and_enough_microbatches(pp: int, mbs: int) -> None:
    plan = api.evaluate(job("llama3-8b", 8, software="torchtitan"), f"pp={pp},mbs={mbs}")
    text = export_plan(plan, "torchtitan")["torchtitan-args.sh"]
    (local,) = map(int, re.findall(r"--training.local_batch_size (\d+)", text))
    (size,) = map(int, re.findall(r"pipeline_parallel_microbatch_size (\d+)", text))
    assert local % size == 0 and local // size >= pp and size == mbs
    assert local * (8 // pp) == 128


def test_val_10_fewer_microbatches_than_stages_are_refused() -> None:
    given = job("llama3-8b", 8, software="torchtitan", **{"training.global_batch_size": "4"})
    with pytest.raises(IllegalLayoutError) as caught:
        api.evaluate(given, "pp=8,mbs=1")
    assert caught.value.rule == "microbatches-fill-pipeline"


# --- val-13: NVIDIA-NeMo/Speech#11480 -------------------------------------------------------------


@pytest.mark.parametrize(("num", "hosts", "each"), [(2, 1, 2), (8, 1, 8), (16, 2, 8)])
def test_val_13_launchers_start_as_many_processes_as_there_are_ranks(
    num: int, hosts: int, each: int
) -> None:
    """Context parallelism of two needs two processes, and every launcher says so."""
    more = {"search.orders": "framework", "model.num_layers": "8"}
    plan = api.evaluate(job("llama3-8b", num, **more), "cp=2,mbs=1,recompute=full")
    torchrun = export_plan(plan, "torchrun")["launch.sh"]
    assert f"--nnodes={hosts} --nproc-per-node={each} " in torchrun
    slurm = export_plan(plan, "slurm")["job.sbatch"]
    assert f"#SBATCH --nodes={hosts}\n#SBATCH --ntasks-per-node={each}\n" in slurm
    assert f"readonly RANKS={hosts * each} PER_HOST={each}\n" in slurm
    assert '((seen == RANKS)) || { echo "$seen of $RANKS ranks answered"' in slurm


# --- val-14: verl-project/verl#1811, NVIDIA-NeMo/Megatron-Bridge#1697, #5386 ----------------------


def test_val_14_a_band_of_batches_offers_multiples_alone() -> None:
    """Batches of 20 to 40 sequences: of every layout a multiple of mbs·dp, and with interleaving
    micro-batches a multiple of pp."""
    given = small_scenario(
        8, model=small_model(num_layers=8),
        training=small_training().replace(batch=Band(at_least=20, at_most=40)),
        software=small_software(rules=("interleaved-microbatches",)),
    )  # fmt: skip
    table, _ = layouts(CostContext.of(given), Search(), prune=False)
    batch = table.num_microbatches * table.mbs * table.dp
    assert len(set(batch.tolist())) > 5
    assert batch.min() >= 20 and batch.max() <= 40
    turns = table.vp > 1
    assert turns.any() and not np.any(table.num_microbatches[turns] % table.pp[turns])


# --- val-15: NVIDIA-NeMo/Megatron-Bridge#2665 -----------------------------------------------------


def test_val_15_hierarchical_sizes_are_always_written() -> None:
    for cp, inner in ((4, 2), (8, 4), (8, 2)):
        plan = api.evaluate(
            job("llama3-8b", 8), f"cp={cp},cp_kind=hierarchical,cp_a2a={inner},mbs=1"
        )
        flags = megatron_flags(plan)
        assert flags["--cp-comm-type"] == "a2a+p2p"
        assert flags["--hierarchical-context-parallel-sizes"] == f"{inner} {cp // inner}"


def test_val_15_more_than_the_peak_is_no_measurement() -> None:
    """1937 TFLOP/s on an H200 of 989 dense: 196 %, and its step time is not believed."""
    given = job("llama3-8b", 8, topology="dgx-h200")
    found = api.diagnose(given, "tflops=1937", "tp=2,mbs=1,recompute=full")
    assert found.claimed_mfu == pytest.approx(1937 / 989.5, rel=1e-3)
    assert found.verdict == "accounting-error" and found.step_seconds is None


# --- val-16: NVIDIA/Megatron-LM arguments.py ------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "layout", "more", "rule"),
    [
        ("llama3-8b", "cp=8", {"training.sequence_length": "8192"}, None),
        ("llama3-8b", "cp=8", {"training.sequence_length": "10000"}, "cp-divides-sequence"),
        ("llama3-8b", "sp=true", {}, "sp-needs-tp"),
        ("llama3-8b", "pp=2,tp=2,offload=activations", {"software": "nemo"},
         "activation-offload-excludes-pipeline"),
        ("mixtral-8x7b", "ep=8,recompute=moe,overlap=ep+dp", {},
         "ep-overlap-excludes-moe-recompute"),
        ("mixtral-8x7b", "ep=4,pp=2,vp=1,overlap=ep+dp+pp", {}, "ep-overlap-needs-virtual-stages"),
    ],
)  # fmt: skip
def test_val_16_rules_have_ids_that_refusals_cite(
    model: str, layout: str, more: dict[str, str], rule: str | None
) -> None:
    # the case names 10000 and cp 8; 10000 = 16 · 625 is a multiple of 2·8, so 2·16 is asked too
    given: Any = job(model, 16, **more)
    if rule == "cp-divides-sequence":
        assert api.evaluate(given, "cp=8,mbs=1").layout is not None
        layout = "cp=16"
    if rule is None:
        assert api.evaluate(given, f"{layout},mbs=1").layout is not None
        return
    with pytest.raises(IllegalLayoutError) as caught:
        api.evaluate(given, f"{layout},mbs=1")
    assert caught.value.rule == rule and caught.value.source
