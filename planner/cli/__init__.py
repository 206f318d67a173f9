"""The command line, `planner`: each command parses, calls one function of `planner.api`, and shows
what it returns.

plans          plan, evaluate, compare, export
advise         explain, check, roofline, shrink
measurements   validate, calibrate
files          list, schema, import
sweeps, pages  sweep; report
program        the group of commands: errors, exit codes, interrupts
options, output, progress   what commands share
"""

from planner.cli.advise import check, explain, roofline, shrink
from planner.cli.files import import_, list_, schema
from planner.cli.measurements import calibrate, validate
from planner.cli.pages import report
from planner.cli.plans import compare, evaluate, export, plan
from planner.cli.program import main
from planner.cli.sweeps import sweep

# in the order of a user's questions; `planner --help` lists them by name
for command in (
    plan, evaluate, compare, export,
    explain, check, roofline, shrink,
    validate, calibrate,
    list_, schema, import_,
    sweep, report,
):  # fmt: skip
    main.add_command(command)

__all__ = ["main"]
