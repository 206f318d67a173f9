#!/usr/bin/bash
set -ex
NGPU=${NGPU:-"8"}
export LOG_RANK=${LOG_RANK:-0}
overrides=""
if [ $# -ne 0 ]; then
    overrides="$*"
fi
PYTORCH_ALLOC_CONF="expandable_segments:True" \
torchrun --nproc_per_node=${NGPU} --rdzv_backend c10d --rdzv_endpoint="localhost:0" \
  --local-ranks-filter ${LOG_RANK} --role rank --tee 3 \
  -m torchtitan.train --module llama3 --config llama3_8b \
  --parallelism.tensor_parallel_degree 2 --parallelism.data-parallel-shard-degree=-1 \
  --training.local_batch_size 1 --training.seq_len 8192 --training.disable_cuda_graphs \
  --compile.enable $overrides activation-checkpoint:selective
