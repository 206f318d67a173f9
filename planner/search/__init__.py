"""Choosing a layout and its placement, with a proof that nothing legal is faster.

The algorithm (docs/search.md explains why it is exact), and where each step is:

    enumerate families of legal layouts                      space/, rules/
    bound each family, each layout                           family_bounds, bounds
    open families, then layouts, by rising bound             families (the conductor), optimize
    cost all placements of an opened layout exactly          placement, placement_rows
    choose one row: the lowest step, then the tie rule       assign (CP-SAT)
    check the answer without the solver                      certify

What they work on: `interface` has the abstract problem, the result, progress and budget;
`layout_problem` is that problem for a job's layouts, `weighted_steps` the same with weighted steps;
`open_list` keeps what is open by rising bound.

Around them: `stage_splits` finds the best split of the layers, `lowest_memory` searches by peak
memory, `one_layout` places a given layout, `infeasible` says why nothing fits, and `inventory`
picks the domains that a plan's blocks go to.
"""
