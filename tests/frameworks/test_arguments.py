"""Settings of launch files: which kind they are, names, lines, counts, what is left aside."""

from __future__ import annotations

import pytest

from planner.errors import InputError
from planner.frameworks.arguments import known_settings
from planner.frameworks.read import INTERPRETERS, read_launch_script
from planner.frameworks.target import target

TARGETS = {
    "--bf16 --tensor-model-parallel-size 2": "megatron",
    "torchrun x.py --parallelism.tensor_parallel_degree 2": "torchtitan",
    "torchrun x.py --activation_checkpoint.mode full --training.seq_len 8": "torchtitan-toml",
    "[training]\nseq_len = 8\n": "torchtitan-toml",
    '{"train_batch_size": 8}': "deepspeed",
    "distributed_type: FSDP\nnum_processes: 8\n": "accelerate",
    "---\n# made by hand\nfsdp_config:\n  fsdp_reshard_after_forward: true\n": "accelerate",
}


@pytest.mark.parametrize("text", TARGETS)
def test_the_target_of_a_file_shows_in_its_content(text):
    assert read_launch_script(text).target == TARGETS[text]


@pytest.mark.parametrize("name", INTERPRETERS)
def test_every_setting_of_a_table_is_read(name):
    to, known = target(name), known_settings(name)
    assert set(to.names.values()) <= set(known)
    for codes in to.codes.values():
        for code in codes.values():
            assert set(code) <= set(known)
            assert all((known[flag] == "switch") == (value is True) or known[flag] != "one"
                       for flag, value in code.items())  # fmt: skip


def test_values_and_lines_of_flags():
    script = read_launch_script(
        "ARGS=(\n  --tensor-model-parallel-size=8\n  --bf16\n"
        "  --recompute-modules moe_act layernorm\n)\n"
        "python pretrain_gpt.py \\\n  ${ARGS[@]} --micro-batch-size 2 --lr 3e-4 --mock-data"
    )
    found = {name: (s.value, s.line) for name, s in script.settings.items()}
    assert found == {
        "--tensor-model-parallel-size": ("8", 2), "--bf16": (True, 3),
        "--recompute-modules": (["moe_act", "layernorm"], 4), "--micro-batch-size": ("2", 7),
    }  # fmt: skip
    assert [(note.subject, note.line) for note in script.ignored] == [
        ("--lr", 7), ("--mock-data", 7)
    ]  # fmt: skip


def test_the_last_of_repeated_flags_counts_as_in_argparse():
    script = read_launch_script("--bf16 --micro-batch-size 1 --micro-batch-size 4")
    assert script.settings["--micro-batch-size"].value == "4"


@pytest.mark.parametrize(
    "flag",
    ["--parallelism.tensor_parallel_degree 4", "--parallelism.tensor-parallel-degree 4",
     "--parallelism.tensor-parallel-degree=4"],
)  # fmt: skip
def test_torchtitan_takes_dashes_and_underscores(flag):
    script = read_launch_script(f"torchrun train.py {flag}")
    assert script.settings["--parallelism.tensor_parallel_degree"].value == "4"


def test_lines_of_toml_json_and_yaml():
    toml = "[training]\nseq_len = 8\n[parallelism]\ntensor_parallel_degree = 2 # x\n"
    assert read_launch_script(toml).settings["parallelism.tensor_parallel_degree"].line == 4
    json = '{\n "fp16": {"enabled": false},\n "zero_optimization": {\n  "stage": 2}}'
    assert read_launch_script(json).settings["zero_optimization.stage"].line == 4
    twice = '{\n "fp16": {"enabled": false},\n "bf16": {"enabled": true}}'
    assert read_launch_script(twice).settings["bf16.enabled"].line == 3
    yaml = "fsdp_config:\n  fsdp_version: 2\n  fsdp_reshard_after_forward: true\n"
    assert read_launch_script(yaml).settings["fsdp_config.fsdp_reshard_after_forward"].line == 3


COUNTS = {
    # what stands before the program → hosts, accelerators of each, all
    "torchrun --nproc_per_node 8 --nnodes 4": (4, 8, None),
    "torchrun --nproc-per-node=8 --nnodes=4": (4, 8, None),
    "torchrun": (1, 1, None),
    "torchrun --nproc-per-node gpu": (1, None, None),
    "torchrun $DISTRIBUTED_ARGS": (None, None, None),
    "torchrun --nnodes 2 $MORE": (2, None, None),
    "torchrun --nnodes 1:4 --nproc_per_node 8": (None, 8, None),
    "torchrun $MORE -n 8": (None, None, None),  # of torchrun no count of all processes
    "srun -N 16 --gpus-per-node=4 python": (16, 4, None),
    "srun -N16 --gres=gpu:h100:8 python": (16, 8, None),
    "srun -n 64 python": (None, None, 64),
    "deepspeed --num_nodes 2 --num_gpus 8": (2, 8, None),
    "python": (None, None, None),
    "python -m torch.distributed.run --nproc_per_node 4": (1, 4, None),
}


@pytest.mark.parametrize("start", COUNTS)
def test_accelerators_that_launchers_name(start):
    count = read_launch_script(f"{start} x.py --bf16 --micro-batch-size 1").count
    assert (count.hosts, count.per_host, count.total) == COUNTS[start]


def test_slurm_s_lines_count_too_and_the_command_wins():
    text = "#!/bin/bash\n#SBATCH --nodes=4\n#SBATCH --gpus-per-node 8\nsrun {} python --bf16 x"
    assert read_launch_script(text.format("")).count.hosts == 4
    count = read_launch_script(text.format("-N 2")).count
    assert (count.hosts, count.per_host) == (4, 8) or (count.hosts, count.per_host) == (2, 8)


def test_a_text_that_is_too_long_is_refused():
    with pytest.raises(InputError, match="is too long"):
        read_launch_script("#" * (5 * 2**20))


def test_numbers_of_thousands_of_digits_are_refused():
    with pytest.raises(InputError, match="not readable as TOML"):
        read_launch_script("[training]\nseq_len = " + "9" * 5000 + "\n")
    with pytest.raises(InputError, match="is not a finite number"):
        read_launch_script('{"train_batch_size": ' + "9" * 5000 + "}")


def test_json_with_a_key_given_twice_is_refused():
    with pytest.raises(InputError, match="given twice"):
        read_launch_script('{"train_batch_size": 8, "train_batch_size": 16}')
