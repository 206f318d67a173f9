"""A plan as a report for the terminal, in the order of the questions that people ask.

Where each line of it comes from:

head        model, cluster and batch; Layout, Step, MFU, Memory, Run
proof       Proof; layouts left out
choice      the choice of accelerators, precision and batch
groups      where each group lives, ranks; traffic of the groups; swaps
nodes       nodes of an inventory: used, spare, crossings
time        time of a step; runners-up
memory      memory of the fullest stage, and of every stage
no_layout   why there is no plan: the nearest miss, the reasons, what would help
report      the order of all this, `plan_report` and `short_report`
"""

from planner.report.text.plan.report import plan_report, short_report

__all__ = ["plan_report", "short_report"]
