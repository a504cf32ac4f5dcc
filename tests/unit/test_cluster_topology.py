from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from easybalance_sim.cluster.topology import Topology, load_cluster, uniform
from easybalance_sim.errors import UsageError

CLUSTERS = Path(__file__).parents[2] / "scenarios" / "clusters"


def _file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "cluster.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_uniform_fills_nodes_in_order() -> None:
    topology = uniform(6, 4, 3, "h100")
    assert topology.node_of_rank.tolist() == [0, 0, 0, 0, 1, 1]
    assert (topology.ranks, topology.nodes, topology.slots, topology.profile) == (6, 2, 18, "h100")
    assert topology.speed.tolist() == [1.0] * 6
    assert not topology.slots_per_rank.flags.writeable


def test_nodes_of_unequal_size_are_said() -> None:
    assert uniform(8, 4, 3).uneven is None
    assert uniform(8, 3, 3).uneven == "nodes of unequal size: 2 to 3 of 8 ranks in one (ranks_per_node)"


@pytest.mark.parametrize(("ranks", "per_node", "slots"), [(0, 8, 1), (8, 0, 1), (8, 8, 0)])
def test_uniform_needs_positive_sizes(ranks: int, per_node: int, slots: int) -> None:
    with pytest.raises(UsageError, match="must be ≥ 1"):
        uniform(ranks, per_node, slots)


@pytest.mark.parametrize(
    ("slots", "speed", "message"),
    [
        ([2, 2, 2], [1, 1], "one entry per rank"),
        ([2, 2], [1], "one entry per rank"),
        ([2, 0], [1, 1], "slots per rank must be ≥ 1"),
        ([2, 2], [1, 0], "speeds > 0"),
        ([2, 2], [1, float("inf")], "speeds > 0"),
    ],
)
def test_contradicting_arrays_are_refused(slots: list[int], speed: list[float], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Topology(node_of_rank=np.array([0, 0]), slots_per_rank=np.array(slots), speed=np.array(speed))


def test_room_for_experts() -> None:
    uniform(4, 4, 3).require_room_for(12)
    with pytest.raises(UsageError, match="12 slots cannot hold 13 experts — give at least 4 slots per rank"):
        uniform(4, 4, 3).require_room_for(13)
    with pytest.raises(UsageError, match="a rank with 3 slots would hold an expert twice"):
        uniform(4, 4, 3).require_room_for(2)


def test_cluster_file_with_everything(tmp_path: Path) -> None:
    topology = load_cluster(
        _file(
            tmp_path,
            "ranks = 4\nranks_per_node = 2\nslots_per_rank = [3, 3, 3, 2]\nspeed = [1.0, 1.0, 0.5, 1]\n"
            'profile = "b200"\nhbm_gib = 1.5\nnode_of_rank = [0, 1, 0, 1]\n',
        )
    )
    assert topology.node_of_rank.tolist() == [0, 1, 0, 1]
    assert topology.slots_per_rank.tolist() == [3, 3, 3, 2]
    assert topology.speed.tolist() == [1.0, 1.0, 0.5, 1.0]
    assert (topology.profile, topology.hbm_bytes) == ("b200", 3 * 2**29)


def test_numbers_stand_for_every_rank(tmp_path: Path) -> None:
    topology = load_cluster(_file(tmp_path, "ranks = 3\nranks_per_node = 2\nslots_per_rank = 5\nspeed = 0.5\n"))
    assert topology.slots_per_rank.tolist() == [5, 5, 5]
    assert topology.speed.tolist() == [0.5, 0.5, 0.5]
    assert (topology.node_of_rank.tolist(), topology.profile, topology.hbm_bytes) == ([0, 0, 1], "h200", 0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ranks = 2", "missing required field `ranks_per_node`"),
        ("ranks = 2\nranks_per_node = 2\nslots_per_rank = 2\nracks = 1", "unknown field `racks`"),
        ("ranks = 2\nranks_per_node = 2\nslots_per_rank = 2.5", r"Expected `int \| array`, got `float`"),
        ("ranks = 0\nranks_per_node = 2\nslots_per_rank = 2", r"Expected `int` >= 1 - at `\$\.ranks`"),
        ("ranks = 1025\nranks_per_node = 8\nslots_per_rank = 2", r"Expected `int` <= 1024 - at `\$\.ranks`"),
        ("ranks = 2\nranks_per_node = 2\nslots_per_rank = [2, 0]", r"Expected `int` >= 1 - at `\$\.slots_per_rank"),
        ("ranks = 2\nranks_per_node = 2\nslots_per_rank = 2\nspeed = [1.0, nan]", "speeds > 0"),
        ("ranks = 2\nranks_per_node = 2\nslots_per_rank = 2\nhbm_gib = -1", r"at `\$\.hbm_gib`"),
        ("ranks = 2\nranks_per_node = 2\nslots_per_rank = [2]", "slots_per_rank has 1 entries for 2 ranks"),
        ("ranks = 2\nranks_per_node = 2\nslots_per_rank = 2\nspeed = [1.0]", "speed has 1 entries for 2 ranks"),
        ("ranks = 2\nranks_per_node = 2\nslots_per_rank = 2\nnode_of_rank = [0, 2]", "without gaps"),
        ("ranks = 2\nranks_per_node = 2\nslots_per_rank = 2\nnode_of_rank = [-1, 0]", r"Expected `int` >= 0"),
        ("ranks = 2\nranks_per_node = 2\nslots_per_rank = 2\nnode_of_rank = [0]", "node_of_rank has 1 entries"),
        ("ranks = 2\nranks_per_node = 2\nslots_per_rank = 2\nspeed = 0.0", "speeds > 0"),
        ("ranks 2", "not a cluster file"),
    ],
)
def test_bad_cluster_files_are_refused_by_name(text: str, message: str, tmp_path: Path) -> None:
    path = _file(tmp_path, text)
    with pytest.raises(UsageError, match=message) as caught:
        load_cluster(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_missing_cluster_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.toml: cannot read: No such file.* — check --cluster"):
        load_cluster(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("name", "ranks", "nodes", "slots"),
    [("hgx-h200-8", 8, 1, 72), ("hgx-h20-8", 8, 1, 72), ("hgx-h100-32", 32, 4, 288), ("nvl72", 72, 1, 288)],
)
def test_shipped_clusters(name: str, ranks: int, nodes: int, slots: int) -> None:
    topology = load_cluster(CLUSTERS / f"{name}.toml")
    assert (topology.ranks, topology.nodes, topology.slots) == (ranks, nodes, slots)


def test_no_shipped_cluster_is_untested() -> None:
    assert {path.stem for path in CLUSTERS.glob("*.toml")} == {"hgx-h200-8", "hgx-h20-8", "hgx-h100-32", "nvl72"}
