"""Predictions compared with measurements, and numbers fitted to them.

The entry points are in `measuring`: one function a command. The modules behind it, in the order in
which they build on each other:

Training runs
    published_runs, row_keys, shipped_names,
    row_models, row_jobs                       a published row → scenario and layout
    row_predictions, metrics, validate_runs    predictions of rows, and their errors
    profile_fit, own_runs_fit, own_runs        a software profile tuned to a user's runs
Collectives
    collective_logs, fabrics                   logs → sweeps on tiers
    validate_collectives, fabric_fit           their errors; a fabric fitted to them
Kernels
    kernel_measurements                        files → products
    operators, validate_kernels, kernel_fit    their errors; an accelerator's numbers fitted to them
All fits
    descent, fitted_files                      the search; numbers → YAML

Users run all of these. `maintenance` makes the numbers that ship and judges them.
"""
