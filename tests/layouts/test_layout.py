"""Layouts and tables of layouts: derived degrees, names, and the doors between the two."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.layouts.grids import DENSE_GRID
from planner.layouts.keys import CP_KINDS, RECOMPUTE
from planner.layouts.layout import Layout, LayoutTable
from tests.oracles import layouts

LAYOUT = Layout(
    tp=8,
    cp=2,
    pp=4,
    dp_shard=16,
    dp_replicate=3,
    ep=8,
    etp=2,
    vp=2,
    mbs=1,
    num_microbatches=64,
    zero_stage=1,
    sp=True,
    recompute="full",
    cp_kind="a2a",
    overlap="tp+dp",
)


def in_table(overlap: str) -> Layout:
    return LayoutTable.from_layouts([Layout(overlap=overlap)]).row(0)


def test_derived_degrees() -> None:
    assert LAYOUT.dp == 48
    assert LAYOUT.num_ranks == 8 * 2 * 4 * 48
    assert LAYOUT.edp == 8 * 2 * 48 // 16
    assert LAYOUT.degrees() == (8, 2, 16, 3, 4)


def test_virtual_stages_make_the_schedule_interleaved() -> None:
    assert LAYOUT.schedule == "interleaved"
    assert Layout(pp=4).schedule == "1f1b"


def test_choices_are_positions_in_their_lists() -> None:
    assert RECOMPUTE[LAYOUT.recompute_index] == "full"
    assert CP_KINDS[LAYOUT.cp_kind_index] == "a2a"
    assert (LAYOUT.overlap_tp, LAYOUT.overlap_dp, LAYOUT.overlap_pp) == (1, 1, 0)
    assert (Layout().overlap_tp, Layout().overlap_dp, Layout().overlap_pp) == (0, 0, 0)


def test_document_has_the_keys_of_the_contract() -> None:
    document = LAYOUT.to_document()
    expected = {
        "tp", "cp", "pp", "dp", "dp_shard", "dp_replicate", "ep", "etp", "edp", "sp", "vp", "mbs",
        "num_microbatches", "zero_stage", "schedule", "stage_layers", "recompute", "cp_kind",
        "overlap",
    }  # fmt: skip
    assert set(document) >= expected
    assert document["cp_a2a"] is None
    hierarchical = Layout(cp=8, cp_kind="hierarchical", cp_a2a=4)
    assert hierarchical.to_document()["cp_a2a"] == 4
    assert "cp8 a2a4" in hierarchical.label()
    assert document["dp"] == 48
    assert document["schedule"] == "interleaved"
    assert json.loads(json.dumps(document)) == document
    uneven = Layout(pp=2, stage_layers=(3, 5)).to_document()
    assert uneven["stage_layers"] == [3, 5]


def test_label_leaves_out_degrees_of_one() -> None:
    assert LAYOUT.label() == "tp8 cp2 ep8 etp2 pp4 vp2 dp48 shard16 mbs1 zero1 full"
    assert Layout(dp_shard=4).label() == "dp4 mbs1 zero1"


def test_groups_are_products_of_atoms() -> None:
    """States shard and gradients move over cp·dp_shard."""
    assert DENSE_GRID.atoms == ("tp", "cp", "dp_shard", "dp_replicate", "pp")
    assert DENSE_GRID.groups["shard"] == ("cp", "dp_shard")
    assert DENSE_GRID.groups["replicate"] == ("dp_replicate",)
    assert set(DENSE_GRID.groups) == {"tp", "cp", "shard", "replicate", "pp"}
    assert {atom for atoms in DENSE_GRID.groups.values() for atom in atoms} == set(DENSE_GRID.atoms)


@given(st.lists(layouts(), min_size=1, max_size=6))
def test_table_and_rows_are_the_same_layouts(rows: list[Layout]) -> None:
    table = LayoutTable.from_layouts(rows)
    assert len(table) == len(rows)
    back = [table.row(i) for i in range(len(rows))]
    assert back == rows
    for row in back:
        assert type(row.tp) is int and type(row.num_microbatches) is int and type(row.sp) is bool
    assert table.degrees().tolist() == [list(row.degrees()) for row in rows]
    assert table.dp.tolist() == [row.dp for row in rows]
    for name in ("tp", "sp", "recompute_index", "cp_kind_index", "overlap_tp", "overlap_pp"):
        column = getattr(table, name)
        assert column.dtype == np.int64
        assert column.tolist() == [int(getattr(row, name)) for row in rows]


@given(st.lists(layouts(), min_size=2, max_size=6), st.data())
def test_take_keeps_rows_whole(rows: list[Layout], data: st.DataObject) -> None:
    table = LayoutTable.from_layouts(rows)
    order = data.draw(st.permutations(range(len(rows))))
    taken = table.take(np.array(order))
    assert [taken.row(i) for i in range(len(taken))] == [rows[k] for k in order]
    mask = np.array([row.tp > 1 for row in rows])
    kept = table.take(mask)
    assert [kept.row(i) for i in range(len(kept))] == [row for row in rows if row.tp > 1]


def test_overlap_comes_back_in_one_spelling() -> None:
    assert in_table("pp+tp").overlap == "tp+pp"
    assert in_table("none").overlap == "none"


def test_table_holds_one_stage_split() -> None:
    uneven = Layout(pp=2, stage_layers=(3, 5))
    table = LayoutTable.from_layouts([uneven, uneven])
    assert table.take([0]).row(0) == uneven
    with pytest.raises(ValueError, match="one stage split"):
        LayoutTable.from_layouts([uneven, Layout(pp=2)])


def test_columns_of_one_value_take_like_any_others() -> None:
    """A uniform table holds one number a column, and gives rows by position, mask and slice."""
    row = Layout(tp=2, pp=4, dp_shard=8)
    table = LayoutTable.uniform(row, 5)
    plain = LayoutTable.from_layouts([row] * 5)
    mask = np.array([True, False, True, False, False])
    for index in (np.array([4, 0, 0]), mask, slice(1, None), slice(0, 5, 2), slice(9, 12)):
        found, expected = table.take(index), plain.take(index)
        assert len(found) == len(expected)
        assert [found.row(i) for i in range(len(found))] == [row] * len(expected)
        assert found.tp.strides == (0,)
