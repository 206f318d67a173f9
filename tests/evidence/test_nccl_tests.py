"""Text of nccl-tests in its layouts, whole and cut, with what else lands in a log."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.errors import InputError
from planner.evidence.nccl_tests import NcclLog, parse_log

DATA = Path(__file__).parent.parent / "data" / "nccl"

HEADER = (
    "#  size count type redop root time algbw busbw #wrong time algbw busbw #wrong\n"
    "#   (B) (elements)            (us) (GB/s) (GB/s)      (us) (GB/s) (GB/s)\n"
)
ROW = "1024 256 float sum -1 20.0 0.05 0.09 0 19.0 0.05 0.09 0\n"


def read(name: str) -> list[NcclLog]:
    return parse_log((DATA / name).read_text("utf-8"), str(DATA / name))


def one(name: str) -> NcclLog:
    (log,) = read(name)
    return log


def test_new_layout() -> None:
    """Header with ranks, lines of NCCL between the rows, the better time, wrong results out."""
    log = one("all_reduce_two_nodes.txt")
    assert log.operation == "all_reduce"
    assert (log.num_ranks, log.num_nodes) == (4, 2)
    assert log.accelerator == "NVIDIA H100 80GB HBM3"
    assert log.sizes_bytes == (8, 1024, 1048576, 1073741824)
    assert log.microseconds == (20.9, 22.1, 60.5, 12750.0)
    assert log.notes == ("line 19: wrong results at 16777216 bytes, left out",)
    assert log.line == 15


def test_old_layout_without_root_and_redop() -> None:
    """`error` is the largest difference: rounding passes, more does not. The file says what ran."""
    log = one("all_gather_old.txt")
    assert (log.operation, log.num_ranks, log.num_nodes) == ("all_gather", 4, 1)
    assert log.sizes_bytes == (1024, 32768)
    assert log.microseconds == (15.1, 16.8)
    assert log.notes == ("line 14: wrong results at 1048576 bytes, left out",)


def test_out_of_place_alone_and_cut_short() -> None:
    log = one("all_to_all_cut.txt")
    assert (log.operation, log.num_ranks, log.num_nodes) == ("alltoall", 32, 4)
    assert (log.accelerator, log.network) == ("H100-SXM", "IB NDR 8x400Gb")
    assert log.source == "made up for tests"
    assert log.sizes_bytes == (4096, 1048576, 16777216)
    assert log.notes == ("line 7 is cut short",)


def test_several_tables_with_labels_and_repeats() -> None:
    """Each table is a log; of a size run three times the median counts."""
    scatter, send = read("several_labelled.txt")
    assert (scatter.operation, send.operation) == ("reduce_scatter", "sendrecv")
    assert scatter.sizes_bytes == (1048576, 2097152)
    assert scatter.microseconds == (22.0, 24.0)
    assert send.microseconds == (61.0,)
    assert scatter.num_ranks == send.num_ranks == 2


@pytest.mark.parametrize(
    ("name", "operation"),
    [
        ("job-alltoall_perf.log", "alltoall"),
        ("AllReduce.txt", "all_reduce"),
        ("x_reduce_scatter_4n.out", "reduce_scatter"),
        ("nccl_sendrecv.txt", "sendrecv"),
    ],
)
def test_a_file_name_may_say_what_ran(name: str, operation: str) -> None:
    (log,) = parse_log(HEADER + ROW, f"logs/{name}")
    assert log.operation == operation


def test_a_command_line_in_the_log_says_what_ran() -> None:
    (log,) = parse_log("+ srun ./build/all_gather_perf -b 8 -e 8G\n" + HEADER + ROW, "slurm-1.out")
    assert log.operation == "all_gather"


@pytest.mark.parametrize(
    "row",
    [
        "1024 256 float sum -1 20.0 0.05 0.09 0 19.0 0.05 0.09 0",
        "1024 256 float sum -1 19.0 0.05 0.09 0",
        "1024 256 float sum 20.0 0.05 0.09 0 19.0 0.05 0.09 0",
        "1024 256 float sum 19.0 0.05 0.09 0",
        "1024 256 float 20.0 0.05 0.09 0 19.0 0.05 0.09 0",
    ],
)
def test_rows_without_a_header_go_by_their_columns(row: str) -> None:
    (log,) = parse_log(row + "\n", "all_reduce.txt")
    assert log.microseconds == (19.0,)


def test_ranks_missing_from_a_cut_header_are_said() -> None:
    text = "#  Rank  7 Group  0 Pid 1 on n0 device 7 [0x1b] H100\n" + HEADER + ROW
    (log,) = parse_log(text, "all_reduce.txt")
    assert log.num_ranks == 8
    assert log.notes == ("only 1 of 8 ranks are listed",)


def test_times_of_zero_are_no_measurements() -> None:
    row = "1024 256 float sum -1 0.00 0.0 0.0 0 0.00 0.0 0.0 0\n"
    (log,) = parse_log(HEADER + ROW.replace("1024", "2048") + row, "all_reduce.txt")
    assert log.sizes_bytes == (2048,)


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("nothing here\n", None, "holds no table of nccl-tests"),
        (HEADER, None, "holds no table of nccl-tests"),
        (HEADER + ROW + "2048 512 float sum -1 20.0\n" + ROW, 4, "a row of 6 columns"),
        (HEADER + ROW.replace("20.0", "2O.0") + ROW, 3, "the time '2O.0' is not a number"),
        (HEADER + ROW.replace("20.0", "-20.0"), 3, "the time '-20.0' is not a number"),
        (HEADER + ROW.replace("19.0", "inf"), 3, "the time 'inf' is not a number"),
    ],
)
def test_errors_name_the_place(text: str, line: int | None, says: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_log(text, "all_reduce.txt")
    assert caught.value.line == line
    assert str(caught.value).startswith("all_reduce.txt" + (f":{line}" if line else ""))
    assert says in str(caught.value)


def test_a_log_that_says_nothing_of_its_operation() -> None:
    with pytest.raises(InputError, match=r"run\.txt:3: no line says which operation ran"):
        parse_log(HEADER + ROW, "run.txt")


def test_a_size_of_thousands_of_digits_is_no_row():
    with pytest.raises(InputError, match="holds no table"):
        parse_log("9" * 5000 + " 1 float sum -1 71.9 14.5 27.3 0\n", "all_reduce.log")
