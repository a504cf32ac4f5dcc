from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from easybalance_sim.errors import UsageError
from easybalance_sim.exports.deployment import with_sidecar
from easybalance_sim.exports.engine_file import Deployment
from easybalance_sim.exports.sidecar import Sidecar, read_sidecar, replacing_with_sidecar, sidecar_of

SAID: dict[str, Any] = {"ranks": 2, "experts": 4, "slots_per_rank": [3, 3], "layers": [3, 4, 6], "model": "m"}
NAME = "map.json.ebsim.json"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file that was exported."""
    path = tmp_path / "map.json"
    with replacing_with_sidecar(path, {**SAID, "evidence": {}}) as temporary:
        temporary.write_text("[[0]]")
    return path


def test_a_file_is_the_one_of_its_sidecar_until_it_is_edited(file: Path) -> None:
    assert sidecar_of(file) == file.with_name(NAME)
    assert json.loads(sidecar_of(file).read_text())["evidence"] == {}
    said, findings = read_sidecar(file)
    assert said is not None
    assert ((said.ranks, said.layers, said.mtp_layers), findings) == ((2, (3, 4, 6), None), [])
    file.write_text("[[1]]")
    said, (finding,) = read_sidecar(file)
    assert (said, finding.level, finding.rule) == (None, "error", "checksum")
    assert finding.message == f"it does not match the sha256 in {NAME}: it was edited since it was exported"


def test_no_sidecar_no_finding(file: Path) -> None:
    sidecar_of(file).unlink()
    assert read_sidecar(file) == (None, [])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON, or cut short: export the plan again"),
        ("\xff", "is not JSON, or cut short: export the plan again"),
        ('{"a": ' * 100_000, "is not JSON, or cut short: export the plan again"),
        ("[]", "is none: Expected `object`, got `array`; export the plan again"),
        ("{}", "is none: Object missing required field `sha256`; export the plan again"),
        ('{"sha256": 1}', "is none: Expected `str`, got `int` - at `$.sha256`; export the plan again"),
        ('{"sha256": "", "ranks": 0}', "is none: Expected `int` >= 1 - at `$.ranks`; export the plan again"),
    ],
)
def test_a_broken_sidecar_is_an_error(file: Path, text: str, message: str) -> None:
    sidecar_of(file).write_bytes(text.encode("latin-1"))
    said, findings = read_sidecar(file)
    assert (said, [finding.message for finding in findings]) == (None, [f"its sidecar {NAME} {message}"])


def test_neither_is_written_when_one_cannot_be(tmp_path: Path) -> None:
    path = tmp_path / "map.json"
    sidecar_of(path).mkdir()
    with pytest.raises(UsageError, match="is a folder, not a file"), replacing_with_sidecar(path, SAID) as temporary:
        temporary.write_text("[[0]]")
        sidecar_of(path).rmdir()
        path.mkdir()
    assert [one.name for one in tmp_path.iterdir()] == ["map.json"]


@pytest.mark.parametrize("name", [".", "..", "inside/.."])
def test_folders_without_a_name_have_a_sidecar_beside_them(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = tmp_path / "plan" / "inside"
    inside.mkdir(parents=True)
    monkeypatch.chdir(inside.parent if name != ".." else inside)
    assert sidecar_of(Path(name)) == tmp_path / "plan.ebsim.json"


def _sidecar(**said: Any) -> Sidecar:
    return Sidecar(
        sha256="", ranks=2, experts=4, slots_per_rank=(3, 3), layers=(3, 4, 6), model="m", hidden_layers=6, **said
    )


def test_what_is_not_said_comes_from_the_sidecar() -> None:
    known, findings = with_sidecar(Deployment(), _sidecar(mtp_layers=(6,)))
    assert known == Deployment(
        ranks=2, experts=4, hidden_layers=6, moe_layers=(3, 4), mtp_layers=(6,), redundant=2, model="m"
    )
    assert findings == ()


def test_an_mtp_layer_that_only_the_model_tells_is_no_contradiction() -> None:
    said = Deployment(hidden_layers=6, moe_layers=(3, 4), mtp_layers=(6,))
    known, findings = with_sidecar(said, _sidecar())
    assert (known.moe_layers, known.mtp_layers, findings) == ((3, 4), (6,), ())


def test_what_is_said_wins_and_contradictions_are_errors() -> None:
    said = Deployment(ranks=3, experts=5, hidden_layers=7, moe_layers=(3,), redundant=1, model="n")
    known, findings = with_sidecar(said, _sidecar())
    assert known == said
    assert {(finding.level, finding.rule) for finding in findings} == {("error", "exported-for")}
    assert [finding.message.removeprefix("the file was exported for ") for finding in findings] == [
        "2 ranks, the engine has 3 ranks",
        "4 experts, the engine has 5 experts",
        "6 layers, dense ones included, the engine has 7 layers, dense ones included",
        "3 MoE layers (3 to 6), the engine has 1 MoE layers (3 to 3)",
        "2 redundant experts, the engine has 1 redundant experts",
    ]
