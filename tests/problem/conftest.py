"""A complete small scenario as files, for tests that change one line of one of them."""

from pathlib import Path

import pytest

_FIGURE = 'source: "test", status: assumed}'

ACCELERATOR = f"""\
name: toy-part
aliases: ["TOY"]
peak:
  bf16: {{value: 100 TFLOP/s, {_FIGURE}
  fp8: {{value: 200 TFLOP/s, {_FIGURE}
vector_peak: {{value: 10 TFLOP/s, {_FIGURE}
hbm_bandwidth: {{value: 2 TB/s, {_FIGURE}
hbm_capacity: {{value: 80 GiB, {_FIGURE}
multiprocessors: {{value: 100, {_FIGURE}
l2: {{value: 50 MiB, {_FIGURE}
hbm_efficiency: {{value: 0.9, {_FIGURE}
sustained: {{value: 0.95, {_FIGURE}
gemm:
  bf16:
    efficiency: {{value: 0.8, {_FIGURE}
    k_half: {{value: 256, {_FIGURE}
    tile_m: {{value: 128, {_FIGURE}
    tile_n: {{value: 256, {_FIGURE}
    overhead: {{value: 4 us, {_FIGURE}
attention:
  flash:
    forward: {{value: 0.6, {_FIGURE}
    backward: {{value: 0.5, {_FIGURE}
    sequence_half: {{value: 500, {_FIGURE}
"""

FABRIC = f"""\
name: toy-net
kind: network
bandwidth: {{value: 400 Gbit/s, {_FIGURE}
base_latency: {{value: 6.6 us, {_FIGURE}
hop_latency: {{value: 5 us, {_FIGURE}
ramp: {{value: 0.2, {_FIGURE}
efficiency: {{value: 0.9, {_FIGURE}
all_reduce_efficiency: {{value: 0.9, {_FIGURE}
all_to_all_efficiency: {{value: 0.8, {_FIGURE}
p2p_efficiency: {{value: 0.6, {_FIGURE}
"""

TOPOLOGY = f"""\
name: toy-cluster
description: two tiers
source: test
accelerator: ./accelerator.yaml
tiers:
  - name: nvlink
    width: 8
    fabric:
      name: toy-link
      kind: scale-up
      bandwidth: {{value: 450 GB/s, {_FIGURE}
      base_latency: {{value: 6 us, {_FIGURE}
      hop_latency: {{value: 1 us, {_FIGURE}
      ramp: {{value: 0, {_FIGURE}
      efficiency: {{value: 0.8, {_FIGURE}
      all_reduce_efficiency: {{value: 1.07, {_FIGURE}
      all_to_all_efficiency: {{value: 0.8, {_FIGURE}
      p2p_efficiency: {{value: 0.8, {_FIGURE}
  - name: leaf
    width: 4
    fabric: ./fabric.yaml
    oversubscription: {{value: 2, {_FIGURE}
"""

MODEL = """\
name: toy-model
source: test
num_layers: 4
hidden_size: 1024
ffn_hidden_size: 4096
num_attention_heads: 16
num_key_value_heads: 4
vocab_size: 32000
gated_mlp: true
tied_embeddings: false
norm: rmsnorm
"""

SOFTWARE = f"""\
name: toy-software
description: for tests
rules: [heads-divide]
orders:
  tp-cp-dp-pp: [tp, cp, dp, pp]
schedules: [1f1b, interleaved]
zero_stages: [0, 1]
shard_groups: any
recompute: [none, selective, full]
sequence_parallel: optional
overlap: [dp, pp]
cp_kinds: [ring]
gradient_bytes: {{value: 4 B, {_FIGURE}
logits_bytes: {{value: 10 B, {_FIGURE}
runtime_bytes: {{value: 1 GiB, {_FIGURE}
communicator_bytes: {{value: 100 MiB, {_FIGURE}
fragile_fraction: {{value: 0.05, {_FIGURE}
coefficients:
  tp_overlap_fraction: {{value: 0.2, {_FIGURE}
  dp_overlap_fraction: {{value: 0.5, {_FIGURE}
  pp_overlap_fraction: {{value: 0, {_FIGURE}
  memory_bound_multiplier: {{value: 1.2, {_FIGURE}
  host_seconds_per_kernel: {{value: 4 us, {_FIGURE}
  contention_fraction: {{value: 0.1, {_FIGURE}
  unexplained_fraction: {{value: 0.01, {_FIGURE}
  unexplained_seconds: {{value: 5 ms, {_FIGURE}
  allocator_fraction: {{value: 0.05, {_FIGURE}
"""

SCENARIO = """\
model: ./model.yaml
topology: ./topology.yaml
num_accelerators: 32
training:
  sequence_length: 4096
  global_batch_size: 64
  precision: bf16
  optimizer: adam
  total_tokens: 15e12
software: ./software.yaml
search:
  tp: [1, 2, 4, 8]
  sp: true
  mbs: 1
price_per_accelerator_hour: 2.5 USD/hour
"""


@pytest.fixture
def texts() -> dict[str, str]:
    """The text of every file by its name."""
    return {
        "accelerator.yaml": ACCELERATOR,
        "fabric.yaml": FABRIC,
        "topology.yaml": TOPOLOGY,
        "model.yaml": MODEL,
        "software.yaml": SOFTWARE,
        "scenario.yaml": SCENARIO,
    }


@pytest.fixture
def folder(tmp_path: Path, texts: dict[str, str]) -> Path:
    """A folder that holds the files."""
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    return tmp_path
