"""Launch scripts: where ranks go, what the script does on a played cluster, hostile names."""

from __future__ import annotations

import random
import re
import subprocess
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import planner
from planner.errors import ExportError
from planner.frameworks.launchers.hosts import hosts_of, rank_map
from planner.layouts.grids import EXPERT_GRID, atom_degree
from planner.layouts.layout import Layout
from planner.layouts.rank_orders import atom_coordinates, framework_order, order_atoms
from planner.planning.export import export_plan, launch_job
from tests.frameworks import stubs
from tests.parsers.harness import ask, folder
from tests.parsers.plans import plan_of, scenario

CUSTOM = (("dp_shard", 2), ("tp", 4), ("pp", 2), ("dp_shard", 2), ("tp", 2))
"""No framework's order: tp in two pieces, the inner one outside data parallelism."""


@cache
def small(order=None, **changes):
    """64 H100s, tp 8, pp 2, dp 4, in the framework's order or another."""
    given = scenario("llama3-8b", 64, 64, "bf16", "megatron-core")
    layout = Layout(tp=8, pp=2, dp_shard=4, mbs=1, num_microbatches=16, sp=True, overlap="tp+dp+pp")
    plan = plan_of(given, replace(layout, **changes), ("tp", "cp", "dp", "pp"))
    return plan if order is None else replace(plan, rank_order=order)


def named(plan, name):
    model = {**plan.inputs["model"], "name": name}
    topology = {**plan.inputs["topology"], "name": name}
    return replace(plan, inputs={**plan.inputs, "model": model, "topology": topology})


def pieces(layout, draw):
    """A random order: every atom's degree in pieces, shuffled."""
    found = []
    for atom in EXPERT_GRID.atoms:
        rest = int(atom_degree(layout, atom, EXPERT_GRID))
        while rest > 1:
            factor = draw.choice([f for f in range(2, rest + 1) if rest % f == 0])
            found.append((atom, factor))
            rest //= factor
    draw.shuffle(found)
    return tuple(found)


# ---------------------------------------------------------------- where ranks are


@given(seed=st.integers(0, 10**6), experts=st.booleans())
@settings(max_examples=60, deadline=None)
def test_ranks_of_places_are_the_coordinates_there(seed, experts):
    draw = random.Random(seed)
    model = "mixtral-8x7b" if experts else "llama3-8b"
    layout = Layout(tp=4, cp=2, pp=2, dp_shard=4, ep=8 if experts else 1, sp=True)
    plan = plan_of(scenario(model, 64, 64, "bf16", "megatron-core"), layout, ("tp",))
    job = launch_job(replace(plan, rank_order=pieces(layout, draw)))
    found = rank_map(job)
    assert sorted(found.ranks().tolist()) == list(range(64))
    # what sits at a place, by the planned order, is what the framework's rank there is
    planned = atom_coordinates(job.rank_order)
    axes = job.scenario.software.orders[found.order]
    theirs = atom_coordinates(framework_order(layout, axes))
    for axis in ("tp", "cp", "dp_shard", "pp"):
        coordinate, reached = np.zeros(64, dtype=np.int64), 1
        for atom in order_atoms([axis], EXPERT_GRID):
            if atom.partition(".")[0] == axis and atom in planned:
                coordinate += planned[atom] * reached
                reached *= int(planned[atom].max()) + 1
        assert (theirs[axis][found.ranks()] == coordinate).all(), axis


def test_a_framework_s_order_needs_no_list():
    assert rank_map(launch_job(small())).is_identity
    assert rank_map(launch_job(small((("tp", 8), ("pp", 2), ("dp_shard", 4))))).is_identity
    assert not rank_map(launch_job(small(CUSTOM))).is_identity


def test_hosts_of_domains_wider_than_a_host():
    racks = planner.evaluate(
        planner.load_scenario("llama3-405b-gb200x1152"), "tp=4,cp=2,pp=8,vp=2,mbs=1"
    )
    where = hosts_of(launch_job(racks))
    domain = racks.fill["nvlink"]
    assert where.ranks_each * where.in_domain == domain
    assert where.ranks_each <= 4 and where.in_domain <= 18
    assert where.number * where.ranks_each == 1152
    text = export_plan(racks, "slurm")["job.sbatch"]
    assert f"#SBATCH --segment={where.in_domain}\n" in text
    assert "export NCCL_MNNVL_ENABLE=1" in text
    assert "CUDA_DEVICE_MAX_CONNECTIONS" not in text  # Blackwell


def test_domains_that_do_not_fall_on_hosts_are_refused():
    plan = replace(small(), fill={"nvlink": 8, "leaf": 8, "spine": 1})
    tiers = [dict(tier) for tier in plan.inputs["topology"]["tiers"]]
    tiers[0]["width"] = 32
    wide = {**plan.inputs, "topology": {**plan.inputs["topology"], "tiers": tiers}}
    with pytest.raises(ExportError, match="how many accelerators a host of h100"):
        export_plan(replace(plan, inputs=wide), "slurm")


def test_variables_are_set_where_they_are_called_for():
    plain = export_plan(small(), "slurm")["job.sbatch"]
    assert re.findall(r"export (NCCL\w+)", plain) == []
    assert "export CUDA_DEVICE_MAX_CONNECTIONS=1" in plain
    reduced = scenario("llama3-8b", 64, 64, "bf16", "megatron-core")
    tiers = list(reduced.topology.tiers)
    sharp = planner.load_scenario(
        "llama3-8b-h100x8", {"topology.tiers.1.fabric": "infiniband-ndr-sharp"}
    )
    tiers[1] = sharp.topology.tiers[1]
    given = reduced.replace(topology=reduced.topology.replace(tiers=tuple(tiers)))
    plan = plan_of(given, small().layout, ("tp", "cp", "dp", "pp"))
    assert "export NCCL_COLLNET_ENABLE=1" in export_plan(plan, "slurm")["job.sbatch"]


# ---------------------------------------------------------------- on a played cluster


@pytest.mark.parametrize("order", [None, CUSTOM], ids=["framework", "custom"])
def test_every_rank_runs_where_it_is_planned(order, tmp_path):
    plan = small(order)
    script = export_plan(plan, "slurm")["job.sbatch"]
    done = stubs.run(stubs.make(tmp_path), script, "program", "--data-path", "a b", hosts=8)
    assert done.returncode == 0, done.stderr
    assert "not checked that hosts are near" in done.stderr  # the cluster has no topology
    expected = rank_map(launch_job(plan)).ranks()
    for place, rank in enumerate(expected.tolist()):
        ran = stubs.words(tmp_path / f"ran-{rank}")
        number, local, world, master, host, *arguments = ran
        assert (number, world, host) == (str(rank), "64", f"h{place // 8}")
        assert 0 <= int(local) < 8
        assert master == f"h{int(np.flatnonzero(expected == 0)[0]) // 8}"
        assert arguments[:2] == ["--data-path", "a b"]
        assert arguments[arguments.index("--tensor-model-parallel-size") + 1] == "8"
    assert len(list(tmp_path.glob("ran-*"))) == 64
    distribution = "arbitrary" if order else "block"
    assert f"--distribution={distribution}" in stubs.words(tmp_path / "srun-0")


def test_a_misplaced_rank_stops_the_job_before_it_starts(tmp_path):
    stubs.make(tmp_path)
    (tmp_path / "misplace").write_text("13")
    done = stubs.run(tmp_path, export_plan(small(), "slurm")["job.sbatch"], "program", hosts=8)
    assert done.returncode == 1
    assert "rank 13 is on elsewhere, planned on h1" in done.stderr
    assert not list(tmp_path.glob("ran-*"))


TOGETHER = "SwitchName=s1 Level=0 LinkSpeed=1 Nodes=h0,h1,h2,h3,h4,h5,h6,h7\n"
APART = "SwitchName=s1 Level=0 LinkSpeed=1 Nodes=h0,h1,h2\nSwitchName=s2 Level=0 X Nodes=h3,h4,h5\n"
BLOCKS = "BlockName=b1 BlockIndex=0 Nodes=h0,h1,h2,h3,h4,h5,h6,h7 BlockSize=8\n"


@pytest.mark.parametrize(("topology", "code"), [(TOGETHER, 0), (BLOCKS, 0), (APART, 1)])
def test_hosts_that_are_planned_together_are_looked_up(topology, code, tmp_path):
    stubs.make(tmp_path, topology)
    done = stubs.run(tmp_path, export_plan(small(), "slurm")["job.sbatch"], "program", hosts=8)
    assert done.returncode == code, done.stderr
    assert ("are planned together" in done.stderr) == (code == 1)


def test_other_numbers_of_hosts_and_no_program_are_refused(tmp_path):
    script = export_plan(small(), "slurm")["job.sbatch"]
    done = stubs.run(stubs.make(tmp_path), script, "program", hosts=7)
    assert done.returncode == 1 and "planned for 8 hosts, got 7" in done.stderr
    done = stubs.run(tmp_path, script, hosts=8)
    assert done.returncode == 2 and "usage" in done.stderr


def test_torchrun_starts_one_host(tmp_path):
    script = export_plan(small(), "torchrun")["launch.sh"]
    stubs.make(tmp_path)
    done = stubs.run(tmp_path, script, "train.py", "--x", NODE_RANK="3", MASTER_ADDR="h0")
    assert done.returncode == 0, done.stderr
    words = stubs.words(tmp_path / "torchrun-called")
    assert words[:3] == ["--nnodes=8", "--nproc-per-node=8", "--node-rank=3"]
    assert words[words.index("train.py") + 1] == "--x"
    missing = stubs.run(tmp_path, script, "train.py")
    assert missing.returncode != 0 and "NODE_RANK" in missing.stderr
    with pytest.raises(ExportError, match="torchrun numbers ranks host after host"):
        export_plan(small(CUSTOM), "torchrun")


def test_the_table_of_ranks():
    lines = export_plan(small(CUSTOM), "rankfile")["ranks.tsv"].splitlines()
    table = [line.split("\t") for line in lines if not line.startswith("#")]
    rows = [dict(zip(table[0], map(int, row), strict=True)) for row in table[1:]]
    assert [row["rank"] for row in rows] == list(range(64))
    expected = rank_map(launch_job(small(CUSTOM))).ranks().tolist()
    for row in rows:
        assert row["host"] == expected.index(row["rank"]) // 8
    assert sorted((row["host"], row["local_rank"]) for row in rows) == [
        (host, local) for host in range(8) for local in range(8)
    ]
    assert [row["tp"] for row in rows[:9]] == [*range(8), 0]


# ---------------------------------------------------------------- hostile names

PAYLOADS = (
    "$(touch pwned)", "`touch pwned`", "; touch pwned #", "\ntouch pwned\n", "' ; touch pwned ; '",
    '" ; touch pwned ; "', "a b", "\\\ntouch pwned", "\r\ntouch pwned", "\u2028touch pwned", "😀 ñ",
    "${IFS}touch", "--segment=9", "\n#SBATCH --nodes=9", "&& touch pwned", "| touch pwned", "%x",
)  # fmt: skip
hostile = st.lists(
    st.one_of(st.sampled_from(PAYLOADS), st.text(min_size=1, max_size=8)), min_size=1, max_size=4
).map("".join)

SCRIPTS = {"slurm": "job.sbatch", "torchrun": "launch.sh", "megatron": "megatron-args.sh"}


@pytest.mark.parametrize("target", SCRIPTS)
@given(name=hostile)
@example(name="".join(PAYLOADS))
@settings(max_examples=25, deadline=None)
def test_names_change_nothing_that_runs(target, name, tmp_path_factory):
    usual = export_plan(small(), target)[SCRIPTS[target]]
    text = export_plan(named(small(), name), target)[SCRIPTS[target]]

    def running(script):
        kept = [
            line for line in script.split("\n") if not re.match(r"# |#SBATCH --job-name=", line)
        ]
        return "\n".join(kept)

    assert running(text) == running(usual)
    (job,) = re.findall(r"(?m)^#SBATCH --job-name=(.*)$", text) or ["planner-x"]
    assert re.fullmatch(r"planner-[A-Za-z0-9._-]+", job)


def test_nothing_of_a_name_is_run(tmp_path):
    for number, name in enumerate((*PAYLOADS, "".join(PAYLOADS))):
        place = tmp_path / f"run {number} $(touch pwned)'"
        place.mkdir()
        script = export_plan(named(small(), name), "torchrun")["launch.sh"]
        done = stubs.run(stubs.make(place), script, name, NODE_RANK=name, MASTER_ADDR=name)
        assert done.returncode == 0, done.stderr
        words = stubs.words(place / "torchrun-called")
        assert f"--node-rank={name}" in words and name in words
        assert not (place / "pwned").exists() and not (tmp_path / "pwned").exists()


# ---------------------------------------------------------------- real parsers


def racks():
    """Random legal layouts in their best placements on NVL72 racks and DGX nodes."""
    draw, found = random.Random(6), []
    choices = [
        ("llama3-8b", "gb200-nvl72", (64, 128, 144, 256)),
        ("mixtral-8x7b", "gb200-nvl72", (64, 128, 192)),
        ("llama3-8b", "dgx-h100", (8, 64, 128, 512)),
    ]
    while len(found) < 200:
        model, topology, sizes = choices[len(found) % 3]
        n = draw.choice(sizes)
        given = rack_scenario(model, topology, n)
        tp, cp, pp = draw.choice((1, 2, 4, 8)), draw.choice((1, 1, 2)), draw.choice((1, 1, 2, 4))
        ep = draw.choice((1, 2, 4, 8)) if "mixtral" in model else 1
        try:
            plan = planner.evaluate(given, f"tp={tp},cp={cp},pp={pp},ep={ep},mbs=1,recompute=full")
            found.append((topology, n, export_plan(plan, "slurm")["job.sbatch"]))
        except planner.PlannerError:
            continue
    return sorted(found)


@cache
def rack_scenario(model, topology, n):
    return planner.load_scenario(
        "llama3-8b-h100x8",
        {"model": model, "topology": topology, "num_accelerators": str(n),
         "training.global_batch_size": str(4 * n), "training.sequence_length": "2048"},
    )  # fmt: skip


@pytest.mark.parsers
def test_sbatch_takes_the_scripts_under_block_and_tree_topologies():
    root = folder("slurm")
    jobs = []
    for topology, _, script in racks():
        rack = topology == "gb200-nvl72"
        kind = ["block", 18] if rack else ["tree", 32]
        jobs.append({"script": script, "topology": kind, "nodes": 288 if rack else 128,
                     "gpus": 4 if rack else 8})  # fmt: skip
    answers = ask("slurm_driver.py", "slurm", jobs, SLURM_ROOT=str(root / "slurm"))
    assert len(answers) >= 200
    assert {answer["rc"] for answer in answers} == {0}, answers[0]
    assert any("--segment=" in job["script"] for job in jobs)
    for job, answer in zip(jobs, answers, strict=True):
        (number,) = re.findall(r"#SBATCH --nodes=(\d+)", job["script"])
        (listed,) = re.findall(r"on nodes (n\S+)", answer["said"])
        assert len(expanded(listed)) == int(number)
        segment = re.findall(r"#SBATCH --segment=(\d+)", job["script"])
        if segment:  # each segment in one block of 18
            blocks = [(host - 1) // 18 for host in expanded(listed)]
            counts = np.bincount(blocks)
            assert (counts % int(segment[0]) == 0).all()


def expanded(listed):
    """Host numbers of n[1-16,19-34] or n7."""
    parts = listed.removeprefix("n").strip("[]").split(",")
    ends = [part.split("-") for part in parts]
    return [host for end in ends for host in range(int(end[0]), int(end[-1]) + 1)]


@pytest.mark.parsers
def test_sbatch_refuses_segments_that_blocks_do_not_hold():
    root = folder("slurm")
    script = "#!/bin/bash\n#SBATCH --nodes={}\n#SBATCH --segment={}\ntrue\n"
    jobs = [
        {"script": script.format(*case), "topology": ["block", 18], "nodes": 36, "gpus": 4}
        for case in ((32, 16), (32, 20), (36, 12))
    ]
    answers = ask("slurm_driver.py", "slurm", jobs, SLURM_ROOT=str(root / "slurm"))
    assert [answer["rc"] for answer in answers] == [0, 1, 1]


@pytest.mark.parsers
def test_torchrun_s_own_parser_reads_the_values(tmp_path):
    jobs = []
    for number in range(8):
        stubs.make(tmp_path)
        script = export_plan(small(), "torchrun")["launch.sh"]
        stubs.run(tmp_path, script, "train.py", NODE_RANK=str(number), MASTER_ADDR="h0")
        jobs.append({"argv": stubs.words(tmp_path / "torchrun-called")})
    for number, answer in enumerate(ask("torchrun_driver.py", "venv", jobs)):
        values = answer["values"]
        assert (values["nnodes"], values["nproc_per_node"]) == ("8", "8")
        assert (values["node_rank"], values["master_addr"]) == (number, "h0")
        assert values["rdzv_backend"] == "static" and values["training_script"] == "train.py"
        assert "--tensor-model-parallel-size" in values["training_script_args"]


@pytest.mark.parsers
def test_shellcheck_is_content(tmp_path):
    checker = folder("venv") / "venv" / "bin" / "shellcheck"
    files = []
    for name in ("usual", "".join(PAYLOADS)):
        for order in (None, CUSTOM):
            for target in SCRIPTS if order is None else ("slurm",):
                plan = named(small(order), name)
                path = tmp_path / f"{len(files)}-{SCRIPTS[target]}"
                path.write_text(export_plan(plan, target)[SCRIPTS[target]], encoding="utf-8")
                files.append(str(path))
    done = subprocess.run([checker, *files], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
