"""What maintainers run: how the fitted numbers that ship are made, judged and reported.

Nothing that users run depends on this package; only the entry points, `measuring`, import it.
Commands are run in a checkout, whose files are those that ship. Rows are those of
scenarios/published/measured_runs.jsonl. Numbers that ship are fitted to all of them and judged by
fits without a part of them (`left_out`).

Shipped files, each with the command that makes it and what it is made from:

topologies/accelerators/*.yaml, `gemm`
    planner calibrate kernels --package --out DIR
    Four fifths of the shapes that the package aiconfigurator-core measured (`kernel_fit`).
topologies/fabrics/*.yaml
    planner calibrate collectives LOG --topology TOPOLOGY --out FILE
    One published all-reduce; another operation where no all-reduce is published (`fabric_fit`).
software/*.yaml, `coefficients`; topologies/accelerators/*.yaml, `sustained`; topologies/overheads
    planner calibrate runs --afresh --out FILE
    All rows at once (`profiles`, `joint_fit`). The numbers are copied into the shipped files.
scenarios/published/prediction_intervals.yaml
    planner calibrate errors --out FILE
    All rows, each as left out (`intervals`).
docs/accuracy-tables.md and the two pictures it shows
    planner validate runs --min-mfu 0.15 --leave-one-out --models dense --report docs
    All rows, every source left out, other planners (`left_out`, `accuracy`).
scenarios/published/peer_errors.yaml
    By hand: other planners run on the same rows.

They rest on each other in this order. A change of the cost model makes all of them stale; tests say
so of the intervals, and of samples of the kernels and fabrics.

How to report:

- The error of rows that were fitted to is never given without that of rows that were not: the
  source or the family left out; of kernels the held-out fifth of the shapes; of
  collectives the section `held_out`.
- The MAPE is given over all rows and with each source counted once, since two sources have half of
  the rows.
- A fit is reported with its rows and sources, the error before and after, what moved, and what no
  row depends on.
- An interval is reported with the fraction of left-out rows inside it, by kind.
- Figures in docs/accuracy.md, docs/kernels.md and README.md change in the same commit.
"""
