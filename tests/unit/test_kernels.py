"""Where compiled kernels are kept."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from easybalance_sim import kernels
from easybalance_sim.cli.console import Console
from easybalance_sim.cli.report_table import warn_of_first_run
from tests.ebsim_process import SAMPLE, python


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A cache folder that cannot be made: it would lie inside a file."""
    (tmp_path / "file").touch()
    place = tmp_path / "file" / "cache"
    monkeypatch.setattr(kernels, "_cache_places", lambda: [place])
    monkeypatch.setenv("NUMBA_CACHE_DIR", "as it was")
    return place


def test_without_a_writable_place_the_cache_is_a_folder_of_this_run(nowhere: Path) -> None:
    kernels.require_cache()
    folder = Path(os.environ["NUMBA_CACHE_DIR"])
    assert folder.is_dir() and os.access(folder, os.W_OK)
    assert not kernels.keeps_compiled() and not kernels.compiled_before()


def test_the_user_hears_that_nothing_is_kept(nowhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    warn_of_first_run(Console())
    assert capsys.readouterr().err.startswith(
        "note: compiling kernels, some 20 seconds in every run: set NUMBA_CACHE_DIR"
    )


@pytest.mark.parametrize("inside", [".", "not/yet/there"])
def test_a_writable_place_is_left_to_numba(inside: str, nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_cache_places", lambda: [nowhere, nowhere.parents[1] / inside])
    kernels.require_cache()
    assert os.environ["NUMBA_CACHE_DIR"] == "as it was"


def test_kernels_run_without_a_home_and_leave_nothing(tmp_path: Path) -> None:
    script = (
        "from pathlib import Path\nfrom easybalance_sim import kernels\n"
        f"kernels._cache_places = lambda: [Path({str(SAMPLE / 'cache')!r})]\n"
        "import numpy as np\n"
        "print(kernels.load().local_rows(np.zeros(3, np.int32), np.array([0, 1, 0], np.int16), 2).tolist())\n"
    )
    done = python("-c", script, env={"TMPDIR": str(tmp_path), "HOME": "/nonexistent"})
    assert (done.returncode, done.stdout) == (0, "[0, 0, 1]\n"), done.stderr
    assert list(tmp_path.iterdir()) == []
