#!/bin/bash
MODEL=${1:-8b}
FP8=${FP8:-0}
GPUS=8
case $MODEL in
  8b)  TP=2; PP=1 ;;
  70b) TP=8; PP=4 ;;
esac
ARGS="--tensor-model-parallel-size $TP --pipeline-model-parallel-size $PP --sequence-parallel"
ARGS="$ARGS --micro-batch-size 1 --global-batch-size 128 --bf16 --use-distributed-optimizer"
if [ "$FP8" = 1 ]; then
  ARGS="$ARGS --fp8-format hybrid"
fi
exec torchrun --nproc_per_node $GPUS pretrain_gpt.py $ARGS
