"""A real Dask cluster on loopback: the same bytes as one process, and one line whatever is killed, damaged or wrong."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from easybalance_sim.plan.plan import Plan
from easybalance_sim.plan.planfile import write_plan
from easybalance_sim.trace.schema import TraceMeta
from easybalance_sim.trace.writer import token_trace_writer
from tests.ebsim_process import Done, ebsim_here
from tests.plan_documents import placed_document
from tests.replay_cases import batch_of, random_ids

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "traces" / "tinymoe.parquet"
PATIENCE_S = 120.0


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """address: of the scheduler · scheduler, workers: the processes."""

    address: str
    scheduler: subprocess.Popen[bytes]
    workers: list[subprocess.Popen[bytes]]

    def client(self) -> Any:
        from distributed import Client

        return Client(self.address, set_as_default=False)  # type: ignore[no-untyped-call]


@contextlib.contextmanager
def cluster(folder: Path, workers: int = 2) -> Iterator[Cluster]:
    """A scheduler and its workers, each a process, on ports of their own choice."""
    known = folder / "scheduler.json"
    common = ["--scheduler-file", str(known), "--no-dashboard"]
    started = [_dask(folder, "scheduler", "--host", "127.0.0.1", "--port", "0", *common)]
    try:
        _wait(lambda: known.exists() and known.read_text(encoding="utf-8").endswith("}"))
        started += [_dask(folder, "worker", "--nthreads", "1", "--no-nanny", *common) for _ in range(workers)]
        address = json.loads(known.read_text(encoding="utf-8"))["address"]
        found = Cluster(address=address, scheduler=started[0], workers=started[1:])
        if workers:
            with found.client() as client:
                client.wait_for_workers(workers, timeout=PATIENCE_S)
        yield found
    finally:
        for process in started:
            process.kill()
            process.wait()


def _dask(folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
    with (folder / f"{arguments[0]}.log").open("ab") as log:
        return subprocess.Popen([sys.executable, "-m", "dask", *arguments], stdout=log, stderr=log, cwd=folder)


def _wait(ready: Any) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not ready():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def _ebsim(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "easybalance_sim", *map(str, arguments)]


def _run(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(_ebsim(*arguments), capture_output=True, text=True, timeout=PATIENCE_S, check=False, cwd=cwd)


def _report(text: str) -> dict[str, Any]:
    """The JSON without what differs between two runs of one process, too."""
    report: dict[str, Any] = json.loads(text)
    return {name: value for name, value in report.items() if name not in ("timing_s", "plan_file")}


def _notes(text: str) -> list[str]:
    """Without progress, which depends on the clock."""
    return [line for line in text.splitlines() if not re.search(r": \d+ %", line)]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("dask")) as found:
        yield found


@pytest.fixture(scope="module")
def long_trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A quarter of a million tokens in steps of 128, so that a part takes a while."""
    path, block = tmp_path_factory.mktemp("trace") / "long.parquet", 1 << 14
    meta = TraceMeta(kind="tokens", layers=tuple(range(24)), experts=32, top_k=4, ranks=8)
    ids = random_ids(0, block, 24, 32, 4)
    with token_trace_writer(path, meta, ("(none)",), level=1) as writer:
        for first in range(0, 16 * block, block):
            rows = np.arange(first, first + block)
            request = rows // (128 * 64) * 128 + rows % 128
            writer.append(batch_of(rows // 128, rows % 8, np.roll(ids, first // 7, axis=0), request=request))
    return path


@pytest.fixture(scope="module")
def replay(long_trace: Path) -> tuple[object, ...]:
    """Arguments of a replay that takes a while."""
    path, rows = long_trace.with_name("plan.json"), np.array([[slot % 32 for slot in range(40)]] * 24)
    plan = Plan(expert_of_slot=rows, slots_per_rank=np.full(8, 5), experts=32, policy="by hand")
    write_plan(path, placed_document(plan, range(24)))
    return ("replay", long_trace, "--plan", path, "--format", "json")


@pytest.fixture(scope="module")
def alone(replay: tuple[object, ...]) -> Done:
    """The same replay in one process."""
    return ebsim_here(*map(str, replay))


def test_a_plan_is_the_same_byte_for_byte(running: Cluster, tmp_path: Path) -> None:
    """Two nodes, so that tokens are sampled, too."""
    policies = ("--policy", "window_search", "--policy", "eplb_relabelled")
    flags = ("--ranks", "8", "--ranks-per-node", "4", "--split", "request", *policies, "--force", "--format", "json")
    alone = ebsim_here("plan", SAMPLE, *flags, "-o", "alone.json", cwd=tmp_path)
    shared = _run("plan", SAMPLE, *flags, "-o", "shared.json", "--dask", running.address, cwd=tmp_path)
    assert (shared.returncode, _notes(shared.stderr)) == (alone.returncode, _notes(alone.stderr))
    assert _report(shared.stdout) == _report(alone.stdout)
    assert (tmp_path / "shared.json").read_bytes() == (tmp_path / "alone.json").read_bytes()


def test_a_worker_killed_in_the_middle_changes_nothing(replay: tuple[object, ...], alone: Done, tmp_path: Path) -> None:
    with cluster(tmp_path) as found, found.client() as client:
        victim = found.workers[1]
        process = subprocess.Popen(
            _ebsim(*replay, "--dask", found.address), stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path
        )
        pid_of = client.run(os.getpid)
        address = next(worker for worker, pid in pid_of.items() if pid == victim.pid)
        _wait(lambda: any(key.startswith("_do") for key in client.processing()[address]))
        victim.send_signal(signal.SIGSTOP)
        in_hand = [key for key in client.processing()[address] if key.startswith("_do")]
        victim.kill()
        output, notes = process.communicate(timeout=PATIENCE_S)
        assert in_hand and len(client.nthreads()) == 1
    assert (process.returncode, _notes(notes.decode())) == (alone.returncode, _notes(alone.stderr))
    assert _report(output.decode()) == _report(alone.stdout)


def test_a_scheduler_killed_in_the_middle_is_one_line(replay: tuple[object, ...], alone: Done, tmp_path: Path) -> None:
    notes = _notes(alone.stderr)
    with cluster(tmp_path, workers=1) as found, found.client() as client:
        process = subprocess.Popen(
            _ebsim(*replay, "--dask", found.address), stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path
        )
        _wait(lambda: any(key.startswith("_do") for keys in client.processing().values() for key in keys))
        client.close()
        found.scheduler.kill()
        output, said = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, output) == (2, b"")
    *before, line = _notes(said.decode())
    assert before == notes[: len(before)]
    assert line == f"ebsim: error: --dask: the scheduler at {found.address} is gone — start it again and repeat the run"


def test_a_damaged_part_is_one_clear_line(running: Cluster, long_trace: Path, tmp_path: Path) -> None:
    path = tmp_path / "bad.parquet"
    data = bytearray(long_trace.read_bytes())
    group = pq.ParquetFile(long_trace).metadata.row_group(5)
    names = [group.column(column).path_in_schema for column in range(group.num_columns)]
    experts = group.column(names.index("experts"))
    middle = experts.data_page_offset + experts.total_compressed_size // 2
    data[middle : middle + 8] = bytes(byte ^ 0xFF for byte in data[middle : middle + 8])
    path.write_bytes(data)
    found = _run("plan", path, "--policy", "eplb", "-o", "plan.json", "--dask", running.address, cwd=tmp_path)
    line = found.stderr.splitlines()[-1]
    assert found.returncode == 2 and "Traceback" not in found.stderr
    assert f"{path} (read by worker tcp://127.0.0.1:" in line and "damaged Parquet file" in line
    assert not (tmp_path / "plan.json").exists()


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "nonsense"])
def test_nobody_at_the_address(address: str, tmp_path: Path) -> None:
    found = _run("plan", SAMPLE, "--dask", address, cwd=tmp_path)
    assert found.returncode == 2
    assert found.stderr.splitlines()[-1] == (
        f"ebsim: error: --dask: no Dask scheduler answers at {address} — start `dask scheduler` or correct the address"
    )


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("foo://127.0.0.1:{port}", "is no address of a Dask scheduler — give one like tcp://host:8786"),
        ("tls://127.0.0.1:{port}", "needs certificates — name them in Dask's settings, distributed.comm.tls.client"),
    ],
)
def test_an_address_of_another_kind(address: str, says: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        address = address.format(port=stranger.getsockname()[1])
        found = _run("plan", SAMPLE, "--dask", address, cwd=tmp_path)
    assert (found.returncode, found.stderr) == (2, f"ebsim: error: --dask: {address} {says}\n")


# What never comes is waited for to the end, whatever its length.
IMPATIENT = """
import importlib, sys
from easybalance_sim.cli.app import main
importlib.import_module(f"easybalance_sim.workers.{sys.argv.pop(1)}").CONNECT_S = 2.0
main()
"""


def test_others_at_the_address(tmp_path: Path) -> None:
    """At once, as each takes its time: a server of another kind, one that says nothing, a scheduler without workers."""
    web = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
    web.handle_error = lambda *_: None  # type: ignore[method-assign]
    threading.Thread(target=web.serve_forever, daemon=True).start()
    with web, socket.create_server(("127.0.0.1", 0)) as silent, cluster(tmp_path, workers=0) as found:
        others = [f"tcp://127.0.0.1:{place.getsockname()[1]}" for place in (web.socket, silent)]
        answers = [_run_at(address, "dask_client", tmp_path) for address in others]
        answers.append(_run_at(found.address, "dask_cluster", tmp_path))
        said = [(*process.communicate(timeout=PATIENCE_S), process.returncode) for process in answers]
        web.shutdown()
    nobody = "ebsim: error: --dask: no Dask scheduler answers at {} — start `dask scheduler` or correct the address\n"
    idle = (
        f"ebsim: error: --dask: the scheduler at {found.address} has no worker — start `dask worker {found.address}`\n"
    )
    assert said == [("", nobody.format(other), 2) for other in others] + [("", idle, 2)]


def _run_at(address: str, impatient: str, folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", IMPATIENT, impatient, "plan", str(SAMPLE), "--dask", address]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder)
