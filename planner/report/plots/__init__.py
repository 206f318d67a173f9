"""Pictures, one subject a file; each function draws on `ax` or on a figure of its own.

placement, time_memory, timeline   of a plan
upgrades                           of a what-if
roofs                              of a roofline
sweep_grid, sweep_curves, tornado  of a sweep
accuracy                           of predictions against measurements
drawing, labels                    what they share
"""
