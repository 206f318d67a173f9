"""Seats: blocks lie in one domain each, groups cross what is counted by hand."""

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from planner.layouts.rank_orders import group_ranks, local_ranks, worst_of
from planner.planning.nodes import Seats, block_seats, crossings, named_order_seats
from planner.search.inventory import choose_domains
from tests.inventories import cluster


def seats(sizes: list[list[int]], fill: tuple[int, int, int]) -> Seats | None:
    of = cluster(sizes)
    blocks = choose_domains(of, fill)
    return None if blocks is None else block_seats(of, blocks, fill)


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.lists(st.integers(1, 6), min_size=1, max_size=4), min_size=1, max_size=3),
    st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(1, 3)),
)
def test_every_block_is_in_one_domain_and_no_node_is_overfull(
    sizes: list[list[int]], fill: tuple[int, int, int]
) -> None:
    found = seats(sizes, fill)
    assume(found is not None)
    assert found is not None
    assert len(found.node) == np.prod(fill)
    size = 1
    for used, of_place in zip(fill, found.domains, strict=True):
        size *= used
        assert (of_place.reshape(-1, size) == of_place.reshape(-1, size)[:, :1]).all()
    of = cluster(sizes)
    nodes, counts = np.unique(found.node, return_counts=True)
    assert (counts <= np.array(of.sizes)[nodes]).all()
    names = [of.domains[0][d] for d in found.domains[0].tolist()]
    assert names == [of.nodes[n] for n in found.node.tolist()]  # here a node is the domain
    assert sum(count for _, count in found.runs()) == len(found.node)


def test_whole_domains_cross_as_the_placement_says() -> None:
    """Where every block has a domain, counting and the uniform formula agree."""
    found = seats([[4, 4, 4], [4, 4, 4]], (4, 2, 2))
    assert found is not None
    order = (("tp", 4), ("pp", 2), ("dp", 2))
    for atoms in (("tp",), ("pp",), ("dp",), ("pp", "dp")):
        groups = group_ranks(order, atoms)
        uniform = [np.arange(16) // size for size in (4, 8, 16)]
        assert worst_of(groups, found.domains) == worst_of(groups, uniform)
    assert crossings(group_ranks(order, ("pp",)), found) == (8, 0, 0)
    assert crossings(group_ranks(order, ("dp",)), found) == (8, 8, 0)


def test_blocks_that_share_a_domain_come_first() -> None:
    found = seats([[4], [4, 4, 4]], (4, 1, 4))
    assert found is not None
    assert found.domains[1].tolist() == [1] * 12 + [0] * 4


def test_a_scheduler_fills_nodes_by_name() -> None:
    of = cluster([[2, 2], [2]])
    found = named_order_seats(of, 5)
    assert [of.nodes[n] for n in found.node.tolist()] == ["n0.0", "n0.0", "n0.1", "n0.1", "n1.0"]
    assert found.domains[1].tolist() == [0, 0, 0, 0, 1]


def test_local_ranks_count_up_on_every_node() -> None:
    assert local_ranks(np.array([3, 3, 1, 1, 3, 1])).tolist() == [0, 1, 0, 1, 2, 2]


def test_alike_many_of_each_node_where_that_can_be() -> None:
    """9 ranks of a rack of trays of 4: 3 of each of 3 trays; 12: 4 of each."""
    from planner.problem.cluster import Cluster
    from tests.inventories import NVL, racks

    of = Cluster.of(racks(1, 18), NVL)
    for number, each in ((9, 3), (12, 4), (64, 4), (72, 4)):
        found = block_seats(of, np.array([1]), (number, 1, 1))
        assert {count for _, count in found.runs()} == {each}
