"""The experts' grid of ranks: atoms of both grids, rank tables, and where the two nest."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.layouts.grids import DENSE_GRID, EXPERT_GRID, GROUPS, atom_degree
from planner.layouts.keys import DISPATCHERS
from planner.layouts.layout import Layout, LayoutTable
from planner.layouts.rank_orders import order_atoms, order_splits
from tests.oracles import expert_layouts, group_sizes, nests, plain_splits

ORDERS = [
    ("tp", "cp", "dp", "pp"),
    ("tp", "cp", "pp", "dp"),
    ("tp", "cp", "dp_shard", "dp_replicate", "pp"),
    ("pp", "dp", "cp", "tp"),
]

any_layout = expert_layouts(8)
nested = any_layout.filter(nests)
powers = st.sampled_from([1, 2, 4])


@st.composite
def small_layouts(draw: st.DrawFn) -> Layout:
    """At most 96 ranks, so that ranks can be walked one by one."""
    tp, cp, shard = (draw(st.sampled_from([1, 2, 3, 4])) for _ in range(3))
    ranks = tp * cp * shard
    etp = draw(st.sampled_from([d for d in range(1, ranks + 1) if ranks % d == 0]))
    rest = ranks // etp
    ep = draw(st.sampled_from([d for d in range(1, rest + 1) if rest % d == 0]))
    replicate, pp = draw(st.sampled_from([(1, 1), (2, 1), (1, 2), (1, 3)]))
    return Layout(tp=tp, cp=cp, dp_shard=shard, dp_replicate=replicate, pp=pp, etp=etp, ep=ep)


# ---------------------------------------------------------------- degrees


def test_groups_are_named_once_in_order() -> None:
    assert GROUPS == ("tp", "cp", "etp", "ep", "shard", "edp", "replicate", "pp")
    assert {atom for atoms in EXPERT_GRID.groups.values() for atom in atoms} == set(
        EXPERT_GRID.atoms
    )


@given(nested)
def test_atoms_multiply_to_every_group(layout: Layout) -> None:
    degrees = dict(zip(EXPERT_GRID.atoms, layout.degrees(EXPERT_GRID), strict=True))
    for group, members in group_sizes(layout).items():
        assert prod(degrees[atom] for atom in EXPERT_GRID.groups[group]) == members, group
    assert prod(degrees.values()) == layout.num_ranks
    assert group_sizes(layout)["edp"] * layout.dp_replicate == layout.edp


@given(st.lists(any_layout, min_size=1, max_size=6))
def test_degrees_of_a_table_are_those_of_its_rows(rows: list[Layout]) -> None:
    table = LayoutTable.from_layouts(rows)
    assert table.degrees(EXPERT_GRID).tolist() == [list(r.degrees(EXPERT_GRID)) for r in rows]
    assert table.grids_nest.tolist() == [row.grids_nest for row in rows]
    assert table.edp.tolist() == [row.edp for row in rows]


@given(any_layout)
def test_nesting_is_one_chain_of_divisors(layout: Layout) -> None:
    assert layout.grids_nest == nests(layout)


def test_grids_that_do_not_nest() -> None:
    """tp 3 against ep 2: of ranks 0 1 2 | 3 4 5 an ep pair 2, 3 lies in two tp groups."""
    assert not Layout(tp=3, dp_shard=2, ep=2).grids_nest
    assert Layout(tp=3, dp_shard=2, ep=6).grids_nest
    assert Layout(tp=3, dp_shard=2, etp=3, ep=2).grids_nest
    assert not Layout(tp=2, cp=3, dp_shard=2, ep=4).grids_nest


def test_atoms_by_hand() -> None:
    """val-11 (pytorch/torchtitan#4831): tp 2, cp 2, dp_shard 2; ep 4 takes tp and cp, ep 8 all."""
    four, eight = (Layout(tp=2, cp=2, dp_shard=2, ep=ep) for ep in (4, 8))
    named = [
        {a: d for a, d in zip(EXPERT_GRID.atoms, x.degrees(EXPERT_GRID), strict=True) if d > 1}
        for x in (four, eight)
    ]
    assert named[0] == {"tp.ep": 2, "cp.ep": 2, "dp_shard": 2}
    assert named[1] == {"tp.ep": 2, "cp.ep": 2, "dp_shard.ep": 2}
    assert (four.edp, eight.edp) == (2, 1)
    layout = Layout(tp=8, dp_shard=2, etp=2, ep=2)
    assert atom_degree(layout, "tp", EXPERT_GRID) == 2
    assert atom_degree(layout, "tp", DENSE_GRID) == 8


# ---------------------------------------------------------------- rank tables


def walked(layout: Layout, axes: Sequence[str]) -> dict[str, list[list[int]]]:
    """Ranks of every ep, etp and edp group: nested loops number ranks, and count along experts."""
    degree = {
        "tp": layout.tp, "cp": layout.cp, "dp_shard": layout.dp_shard,
        "dp_replicate": layout.dp_replicate, "pp": layout.pp,
    }  # fmt: skip
    inner_first = list(
        itertools.chain(*[("dp_shard", "dp_replicate") if a == "dp" else (a,) for a in axes])
    )
    loops = [range(degree[axis]) for axis in reversed(inner_first)]
    rank_at = {}
    for rank, place in enumerate(itertools.product(*loops)):
        rank_at[frozenset(zip(reversed(inner_first), place, strict=True))] = rank
    groups: dict[str, dict[tuple[int, ...], list[int]]] = {
        name: defaultdict(list) for name in ("etp", "ep", "edp")
    }
    for pp, replicate in itertools.product(range(layout.pp), range(layout.dp_replicate)):
        stage = itertools.product(range(layout.dp_shard), range(layout.cp), range(layout.tp))
        for count, (shard, cp, tp) in enumerate(stage):
            place = {"tp": tp, "cp": cp, "dp_shard": shard, "dp_replicate": replicate, "pp": pp}
            rank = rank_at[frozenset(place.items())]
            rest, etp = divmod(count, layout.etp)
            edp, ep = divmod(rest, layout.ep)
            groups["etp"][pp, replicate, ep, edp].append(rank)
            groups["ep"][pp, replicate, etp, edp].append(rank)
            groups["edp"][pp, replicate, etp, ep].append(rank)
    return {name: list(found.values()) for name, found in groups.items()}


@settings(max_examples=80, deadline=None)
@given(
    small_layouts(),
    st.sampled_from(ORDERS),
    st.lists(st.integers(1, 9), min_size=1, max_size=3),
)
def test_splits_of_expert_groups_count_domains(
    layout: Layout, axes: tuple[str, ...], widths: list[int]
) -> None:
    """Also where the grids do not nest, and where groups do not nest in domains."""
    widths[-1] = max(widths[-1], layout.num_ranks)
    found = order_splits(layout, axes, widths)
    sizes = list(itertools.accumulate(widths, lambda a, b: a * b))[:-1]
    for name, groups in walked(layout, axes).items():
        assert {len(group) for group in groups} == {group_sizes(layout)[name]}
        most = [len(groups[0])]
        most += [max(len({rank // size for rank in group}) for group in groups) for size in sizes]
        expected = [inner / outer for inner, outer in itertools.pairwise([*most, 1])]
        assert found[name] == pytest.approx(expected, rel=1e-12), name


@given(
    st.tuples(*[powers] * 7),
    st.sampled_from(ORDERS[:3]),
    st.lists(st.sampled_from([2, 4, 8]), min_size=3, max_size=3),
)
@settings(max_examples=60, deadline=None)
def test_nested_splits_are_products_of_atoms(
    degrees: tuple[int, ...], axes: tuple[str, ...], widths: list[int]
) -> None:
    """Powers of two nest: atoms fill the tiers in turn, and groups are products of them."""
    tp, cp, shard, replicate, pp, etp, ep = degrees
    ranks = tp * cp * shard
    etp = min(etp, ranks)
    layout = Layout(
        tp=tp, cp=cp, dp_shard=shard, dp_replicate=replicate, pp=pp, etp=etp,
        ep=min(ep, ranks // etp),
    )  # fmt: skip
    widths[-1] = max(widths[-1], layout.num_ranks)
    room = list(widths)
    placement = {atom: [1] * len(widths) for atom in EXPERT_GRID.atoms}
    for atom in order_atoms(axes, EXPERT_GRID):
        left = int(atom_degree(layout, atom, EXPERT_GRID))
        for tier, free in enumerate(room):
            take = min(left, free)
            placement[atom][tier], room[tier], left = take, free // take, left // take
    splits = plain_splits([placement[atom] for atom in EXPERT_GRID.atoms])
    found = order_splits(layout, axes, widths)
    assert set(found) == set(splits)
    for group, members in splits.items():
        assert found[group] == members, group


def test_experts_of_deepseek_v3_on_racks_by_hand() -> None:
    """256 GB300 of four racks filled to 64, pp 2, ep 32: two ep groups to a rack."""
    layout = Layout(pp=2, dp_shard=128, ep=32)
    found = order_splits(layout, ("tp", "cp", "dp", "pp"), (64, 4, 1))
    assert found["ep"] == [32.0, 1.0, 1.0]
    assert found["edp"] == [2.0, 2.0, 1.0]
    assert found["shard"] == [64.0, 2.0, 1.0]
    assert found["pp"] == [1.0, 2.0, 1.0]


# ---------------------------------------------------------------- rows and tables


@given(st.lists(any_layout, min_size=1, max_size=6))
def test_table_and_rows_are_the_same_layouts(rows: list[Layout]) -> None:
    table = LayoutTable.from_layouts(rows)
    assert [table.row(i) for i in range(len(rows))] == rows
    for name in ("ep", "etp", "dispatcher_index", "overlap_ep"):
        column = getattr(table, name)
        assert column.dtype == np.int64
        assert column.tolist() == [int(getattr(row, name)) for row in rows]


def test_dispatchers_and_overlaps_are_positions_in_their_lists() -> None:
    found = [Layout(ep=2, dispatcher=name).dispatcher_index for name in DISPATCHERS]
    assert found == list(range(len(DISPATCHERS)))
    assert (Layout(overlap="dp+ep").overlap_ep, Layout(overlap="dp").overlap_ep) == (1, 0)


def test_document_names_a_dispatcher_where_tokens_travel() -> None:
    assert Layout(dp_shard=8, ep=4, dispatcher="flex").to_document()["dispatcher"] == "flex"
    assert Layout(dp_shard=8).to_document()["dispatcher"] is None
    document = Layout(dp_shard=8, dp_replicate=2, ep=4).to_document()
    assert (document["ep"], document["etp"], document["edp"]) == (4, 1, 4)
