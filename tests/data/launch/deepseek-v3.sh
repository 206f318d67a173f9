#!/bin/bash
# 671B on 2,048 parts, as its report splits it: 16 stages, experts over 64 ranks.
declare -A unused=([a]=1)
NODES=256
: "${EP:=64}"
readonly PIPELINE='Et*3|(t*4|)*14t*2mL'
PARALLEL=(--pipeline-model-parallel-size 16 --pipeline-model-parallel-layout "$PIPELINE"
          --expert-model-parallel-size "$EP" --expert-tensor-parallel-size 1
          --moe-token-dispatcher-type flex --moe-enable-deepep)
PARALLEL+=(--recompute-granularity selective --recompute-modules mla_up_proj)
cat <<INFO
--tensor-model-parallel-size 99 is only talked about here
INFO
srun -N $NODES --gpus-per-node=8 python pretrain_gpt.py "${PARALLEL[@]}" \
  --micro-batch-size 1 --global-batch-size 15360 --seq-length 4096 --bf16 \
  --use-distributed-optimizer --fp8-format e4m3 --fp8-recipe blockwise
