#! /bin/bash

# Runs GPT-3 175B as the examples of 2022 did: one string of options.

GPUS_PER_NODE=8
NNODES=${NNODES:-128}
NODE_RANK=${NODE_RANK:-0}
WORLD_SIZE=$(($GPUS_PER_NODE*$NNODES))

DISTRIBUTED_ARGS="--nproc_per_node $GPUS_PER_NODE --nnodes $NNODES --node_rank $NODE_RANK"

OPTIONS=" \
        --tensor-model-parallel-size 8 \
        --pipeline-model-parallel-size 16 \
        --num-layers 96 \
        --hidden-size 12288 \
        --num-attention-heads 96 \
        --seq-length 2048 \
        --max-position-embeddings 2048 \
        --micro-batch-size 1 \
        --global-batch-size 1536 \
        --rampup-batch-size 16 16 5859375 \
        --attention-dropout 0.0 --hidden-dropout 0.0 \
        --recompute-activations \
        --sequence-parallel \
        --use-distributed-optimizer \
        --fp16 "

run_cmd="torchrun $DISTRIBUTED_ARGS pretrain_gpt.py $@ ${OPTIONS}"
echo "$run_cmd"
eval $run_cmd
