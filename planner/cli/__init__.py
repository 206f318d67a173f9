"""The command line: `planner`. Everything it does is one call of `planner.api`."""

from planner.cli.collectives import calibrate, validate_collectives
from planner.cli.commands import main, validate
from planner.cli.explain import explain as explain_command
from planner.cli.kernels import calibrate_kernels, validate_kernels
from planner.cli.roofline import roofline as roofline_command

main.add_command(calibrate)
main.add_command(explain_command)
main.add_command(roofline_command)
calibrate.add_command(calibrate_kernels)
validate.add_command(validate_collectives)
validate.add_command(validate_kernels)

__all__ = ["main"]
