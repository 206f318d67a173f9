"""The command line: `planner`. Everything it does is one call of `planner.api`."""

from planner.cli.check import check as check_command
from planner.cli.collectives import calibrate_collectives, validate_collectives
from planner.cli.commands import calibrate, main, validate
from planner.cli.explain import explain as explain_command
from planner.cli.import_model import import_model
from planner.cli.import_topology import import_topology
from planner.cli.imports import import_
from planner.cli.kernels import calibrate_kernels, validate_kernels
from planner.cli.report import report as report_command
from planner.cli.roofline import roofline as roofline_command
from planner.cli.runs import calibrate_errors, calibrate_runs, validate_runs
from planner.cli.shrink import shrink
from planner.cli.sweep import sweep as sweep_command

main.add_command(check_command)
main.add_command(explain_command)
main.add_command(report_command)
main.add_command(roofline_command)
main.add_command(import_)
import_.add_command(import_model)
main.add_command(shrink)
import_.add_command(import_topology)
main.add_command(sweep_command)
for command in (validate_runs, validate_collectives, validate_kernels):
    validate.add_command(command)
for command in (calibrate_runs, calibrate_errors, calibrate_collectives, calibrate_kernels):
    calibrate.add_command(command)

__all__ = ["main"]
