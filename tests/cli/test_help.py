"""Help: quick to come, and every example in it runs as it stands."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from easybalance_sim import kernels
from easybalance_sim.cli.command import EXIT_CODES
from easybalance_sim.cluster.hardware import profile_names
from easybalance_sim.load.split import MODES
from easybalance_sim.plan.planfile import read_plan
from easybalance_sim.replay.dispatch import RULES
from tests.ebsim_process import DATA, ROOT, ebsim_here, one_line, python
from tests.measured_rows import write_grouped_gemm
from tests.recordings import load_line

HEAVY = ("numpy", "pandas", "pyarrow", "numba", "matplotlib", "cupy")
COMMANDS: tuple[tuple[str, ...], ...] = (
    (),
    ("init",),
    ("plan",),
    ("replay",),
    ("explain",),
    ("sweep",),
    ("report",),
    ("gate",),
    ("precheck",),
    ("rollout",),
    ("history",),
    ("compare",),
    ("diff",),
    ("rebalance",),
    ("offset",),
    ("simulate",),
    ("capacity",),
    ("offload",),
    ("export",),
    ("adopt",),
    ("lint",),
    ("import",),
    ("profile",),
    ("profile", "list"),
    ("profile", "show"),
    ("profile", "fit"),
    ("profile", "import"),
    ("profile", "measure"),
    ("trace",),
    ("trace", "check"),
    ("trace", "summary"),
    ("trace", "loads"),
    ("trace", "convert"),
    ("trace", "synthesise"),
)
SPY = f"""
import contextlib, io, json, sys
from easybalance_sim.cli.app import main
told, seen = [], set()
for command in json.load(sys.stdin):
    sys.argv, out, code = ["ebsim", *command, "--help"], io.StringIO(), None
    try:
        with contextlib.redirect_stdout(out):
            main()
    except SystemExit as stop:
        code = stop.code
    heavy = set({HEAVY!r}) & set(sys.modules)
    told.append([code, sorted(heavy - seen), out.getvalue()])
    seen |= heavy
print(json.dumps(told))
"""


def _id(command: tuple[str, ...]) -> str:
    return " ".join(("ebsim", *command))


def _help(command: tuple[str, ...]) -> str:
    done = ebsim_here(*command, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def _examples(text: str) -> list[str]:
    """A long one goes on in the next line, as a shell reads it."""
    return re.findall(r"^ *Example: ebsim (.+)$", re.sub(r" \\\n *", " ", text), re.MULTILINE)


@pytest.fixture(scope="module")
def told() -> dict[tuple[str, ...], tuple[int, list[str], str]]:
    """Exit code, heavy modules that were imported for it, and the help of each command: all asked in one process."""
    done = python("-c", SPY, stdin=json.dumps(COMMANDS))
    assert (done.returncode, done.stderr) == (0, "")
    return dict(zip(COMMANDS, map(tuple, json.loads(done.stdout)), strict=True))


@pytest.mark.parametrize("command", COMMANDS, ids=_id)
def test_help_imports_nothing_heavy(
    command: tuple[str, ...], told: dict[tuple[str, ...], tuple[int, list[str], str]]
) -> None:
    code, heavy, text = told[command]
    assert (code, heavy) == (0, [])
    assert "Usage: " in text and "--help" in text


def test_help_teaches_within_80_columns(told: dict[tuple[str, ...], tuple[int, list[str], str]]) -> None:
    """A purpose, an example, exit codes, and how to hear less or more."""
    for command, (_, _, text) in told.items():
        assert [line for line in text.splitlines() if len(line) > 80] == [], command
        usage, purpose, *_ = text.split("\n\n")
        assert usage.startswith("Usage: ebsim ") and re.search(r"\w+ \w+ \w+.*[.?:]", purpose, re.DOTALL), command
        assert re.search(r"\bExit (0|1|code)", text) and _examples(text), command
        assert "\n  -q, --quiet " in text and "\n  -v, --verbose " in text, command
        alone = command in ((), ("trace",), ("profile",))
        assert "130" in text if not command else alone or EXIT_CODES in text, command


def test_every_command_is_tested_here() -> None:
    def listed(*command: str) -> set[str]:
        commands = _help(command).partition("\nCommands:\n")[2]
        return set(re.findall(r"^  (\S+)  ", commands, re.MULTILINE))

    assert listed() == {command[0] for command in COMMANDS if len(command) == 1}
    for group in ("profile", "trace"):
        assert listed(group) == {command[1] for command in COMMANDS if command[:1] == (group,) and len(command) == 2}


def test_no_command_is_usage_and_the_version_is_said() -> None:
    assert re.fullmatch(r"ebsim \d+\.\d+\.\d+\n", ebsim_here("--version").stdout)
    for command in ((), ("profile",), ("trace",)):
        done = ebsim_here(*command)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("Usage: ") and "\nCommands:\n" in done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as the examples expect it: the sample trace, recordings, a plan, a report and criteria."""
    folder = tmp_path_factory.mktemp("examples")
    (folder / "traces").symlink_to(ROOT / "traces")
    (folder / "scenarios").symlink_to(ROOT / "scenarios")
    if (DATA / "gptoss20b_routing").is_dir():
        (folder / "routed_tokens").symlink_to(DATA / "gptoss20b_routing")
    done = ebsim_here("plan", "traces/tinymoe.parquet", "--format", "json", "--force", "-o", "plan.json", cwd=folder)
    assert json.loads(done.stdout)["plan_file"] == "plan.json"
    (folder / "report.json").write_text(done.stdout)
    write_grouped_gemm(folder / "grouped_gemm.csv")
    for name in ("old.json", "new.json"):
        (folder / name).write_bytes((folder / "plan.json").read_bytes())
    (folder / "load_stats.jsonl").write_text(load_line(1, [[10, 1, 5, 2, 9, 1], [2, 8, 1, 3, 1, 2]]))
    times = [f"{layer},{rank},{20 + rank}\n" for layer in range(8) for rank in range(8)]
    (folder / "rank_times.csv").write_text("".join(["layer,rank,us\n", *times]))
    (folder / "strict.toml").write_text("p99_imbalance_drop_min = 0.2\n")
    rows = [list(record.expert_of_slot) for record in read_plan(folder / "plan.json").layers]
    (folder / "expert_location.json").write_text(json.dumps({"physical_to_logical_map": rows}))
    return folder


@pytest.mark.parametrize("command", COMMANDS, ids=_id)
def test_every_help_has_an_example_that_runs(command: tuple[str, ...], folder: Path) -> None:
    examples = _examples(_help(command))
    assert examples != []
    for example in examples:
        if "routed_tokens" in example and not (folder / "routed_tokens").exists():
            pytest.skip("the example needs recorded routing at ../shared/data/gptoss20b_routing")
        _require_result(shlex.split(example), folder)


def _require_result(example: list[str], folder: Path) -> None:
    """A result, or a verdict with its exit code, for a plan that it is accepted; what -o names is written when it is
    0."""
    done = ebsim_here(*example, cwd=folder)
    if example[:2] == ["profile", "measure"] and kernels.gpu_fault():
        assert (done.returncode, "no GPU can be measured" in one_line(done)) == (2, True)
        return
    verdicts = (0, 1) if example[0] in ("replay", "gate", "compare", "precheck") else (0,)
    assert done.returncode in verdicts, done.stderr
    assert done.stdout != ""
    if "-o" in example and done.returncode == 0:
        assert (folder / example[example.index("-o") + 1]).stat().st_mtime_ns > (
            folder / "strict.toml"
        ).stat().st_mtime_ns


def test_help_names_every_choice() -> None:
    """The texts are written out, so that help stays quick: they must not fall behind."""
    text = " ".join(_help(("plan",)).split()).replace("- ", "-")
    for option, known in (("--dispatch RULE", RULES), ("--profile NAME|FILE", profile_names()), ("--split BY", MODES)):
        said = text.partition(option)[2].partition(" --")[0]
        assert [name for name in known if not re.search(rf"(?<![\w-]){name}(?![\w-])", said)] == [], option
