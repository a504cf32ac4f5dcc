"""Placements that were deployed are adopted, pass as plan files, and are replayed on recorded traffic."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from easybalance_sim.exports.engines.omni import read
from easybalance_sim.plan.planfile import read_plan
from tests.ebsim_process import DATA, ebsim_here

PLACEMENTS, COUNTS = DATA / "omni_placements", DATA / "deepseek_v3_counts"
FILES = sorted(PLACEMENTS.glob("*.npz"))
UNEQUAL_FILES = 2

pytestmark = pytest.mark.skipif(
    not FILES or not COUNTS.is_dir(), reason="needs deployed placements and recorded counts at ../shared/data"
)


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The 8k packing as a count trace."""
    folder = tmp_path_factory.mktemp("deepseek")
    done = ebsim_here("trace", "convert", COUNTS, "-o", folder / "dsv3.parquet")
    assert done.returncode == 0, done.stderr
    return folder / "dsv3-8k.parquet"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem[:40])
def test_a_deployed_placement_is_adopted_linted_and_replayed(path: Path, trace: Path, tmp_path: Path) -> None:
    plan = tmp_path / "deployed.json"
    linted = ebsim_here("lint", path, "--engine", "omni", "--model", "deepseek-v3", "--format", "json")
    adopted = ebsim_here("adopt", "omni", path, "-o", plan, "--model", "deepseek-v3")
    assert (linted.returncode, adopted.returncode) == (0, 0), linted.stdout + adopted.stderr
    found = {finding["rule"] for finding in json.loads(linted.stdout)["findings"]}
    document, file = read_plan(plan), read(path)
    assert document.verdict == {"status": "not judged", "findings": []}
    assert document.layer_ids == tuple(range(3, 61))
    for record, row in zip(document.layers, file.rows, strict=True):
        assert set(record.expert_of_slot) == set(row) == set(range(256))
    as_plan = ebsim_here("lint", plan, "--format", "json")
    same_everywhere = len(set(file.ranks_of_rows or ())) == 1
    assert as_plan.returncode == 0
    assert {finding["rule"] for finding in json.loads(as_plan.stdout)["findings"]} == (
        set() if same_everywhere else {"filler"}
    )
    assert same_everywhere == (found == set())
    done = ebsim_here("replay", trace, "--plan", plan, "--format", "json")
    assert done.returncode == 3, done.stderr
    report = json.loads(done.stdout)
    assert report["plan"]["policy"] == "adopted"
    assert 1 < report["plan"]["rank_imbalance"]["mean"] < 3
    if "baseline" in path.name:
        assert report["plan"]["rank_imbalance"] == report["baseline"]["rank_imbalance"]


def test_all_are_there() -> None:
    assert len(FILES) == 14
    assert sum(len(set(read(path).ranks_of_rows or ())) > 1 for path in FILES) == UNEQUAL_FILES
