from __future__ import annotations

import json
from pathlib import Path

import pytest

from easybalance_sim.exports.sidecar import check_sidecar, sidecar_of, write_sidecar


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "map.json"
    path.write_text("[[0]]")
    return path


def test_a_file_is_the_one_of_its_sidecar_until_it_is_edited(file: Path) -> None:
    sidecar = write_sidecar(file, {"fingerprint": "ab"})
    assert sidecar == sidecar_of(file) == file.with_name("map.json.ebsim.json")
    assert json.loads(sidecar.read_text())["fingerprint"] == "ab"
    assert check_sidecar(file) == []
    file.write_text("[[1]]")
    (finding,) = check_sidecar(file)
    assert (finding.level, finding.rule) == ("error", "checksum")
    assert finding.message == (
        "it does not match the sha256 in map.json.ebsim.json: it was edited since it was exported"
    )


def test_no_sidecar_no_finding(file: Path) -> None:
    assert check_sidecar(file) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "its sidecar map.json.ebsim.json is not JSON, or cut short: export the plan again"),
        ("\xff", "its sidecar map.json.ebsim.json is not JSON, or cut short: export the plan again"),
        ("[]", "its sidecar map.json.ebsim.json holds no sha256: export the plan again"),
        ('{"sha256": 1}', "its sidecar map.json.ebsim.json holds no sha256: export the plan again"),
    ],
)
def test_a_broken_sidecar_is_an_error(file: Path, text: str, message: str) -> None:
    sidecar_of(file).write_bytes(text.encode("latin-1"))
    assert [finding.message for finding in check_sidecar(file)] == [message]
