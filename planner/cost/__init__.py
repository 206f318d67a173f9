"""What things cost: pure numpy formulas that take numbers or arrays and return the same.

A scenario's numbers are in `context`; a layout's keys are read off `LayoutLike`, one layout or a
table of many. From single formulas up to the step:

    roofline            attainable FLOP/s, ridges, intensities of usual kernels
    collectives         all-gather, all-reduce, … over tiers: latency and busy seconds by formula
    collective_costs    which of these a collective takes on a topology, per call and byte
    kernels             one matmul, one attention kernel
    layers              kinds of layers and the matmuls they are made of
    elementwise         memory-bound kernels and casts
    statespace          what a state-space block does between its projections
    compute             seconds of a layer's kernels, of embedding, head and loss
    experts             seconds of routed experts' kernels, tokens that travel to them
    recompute           what each recompute choice repeats, and what it keeps
    offload             what lives in the host's memory, and the optimizer's step there
    layer_work          a layer's kernels with recompute, by kind of layer
    stage_split         how layers fall on the stages and chunks of a pipeline
    stages              which stages and layers ranks hold, folded pipelines among them
    pipeline            micro-batches in flight, bubbles
    channels, traffic   what each group moves, how often, and what can hide it
    overlap             how much of it hides
    layer_costs         kernels and exposed traffic of layers joined
    overheads           launching kernels, stragglers
    step                all of it joined to the seconds of a step, by cause
    model_states        parameters, gradients and optimizer states of a rank; the optimizer's step
    activations         bytes that a layer keeps for its backward pass
    memory              peak memory by stage and term (logits, buffers, …), and whether it fits
    flops               model FLOPs and executed FLOPs, for MFU and HFU
    stage_split_bounds  lower bounds of step and memory over all stage splits
    chunks              passes of every chunk, for a timeline of the pipeline
    prediction_intervals  where measurements lie around predictions
"""
