"""What the functions take: paths as text, a `Path` or several; one name or number or several."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, SupportsInt

from easybalance_sim.planning.session import Settings

PathLike = str | os.PathLike[str]
Traces = PathLike | Sequence[PathLike]
"""Trace files or folders of one model."""
Names = str | Sequence[str] | None
"""One name or several; None = not said."""
Numbers = int | Sequence[int]
"""One number or several; empty = not said."""


def paths_of(traces: Traces | None) -> tuple[Path, ...]:
    """Each as a `Path`; none of None."""
    if traces is None:
        return ()
    return (Path(traces),) if isinstance(traces, str | os.PathLike) else tuple(Path(one) for one in traces)


def path_of(path: PathLike | None) -> Path | None:
    """The same as a `Path`."""
    return None if path is None else Path(path)


def names_of(names: Names) -> tuple[str, ...]:
    """Each; none of None."""
    return (names,) if isinstance(names, str) else tuple(names or ())


def numbers_of(numbers: Numbers) -> tuple[int, ...]:
    """Each once, in the order given."""
    if isinstance(numbers, SupportsInt):
        return (int(numbers),)
    return tuple(dict.fromkeys(int(number) for number in numbers))


def settings_of(said: Mapping[str, Any]) -> Settings:
    """The part of a call that all runs on a trace share; what is None is as if it were not said."""
    plain = {name: said[name] for name in _PLAIN if said.get(name) is not None}
    texts = {name: os.fspath(said[name]) for name in ("model", "profile") if name in said}
    return Settings(
        traces=paths_of(said["traces"]),
        cluster=path_of(said.get("cluster")),
        workloads=names_of(said.get("workload")),
        **plain,
        **texts,
    )


_PLAIN = (
    "ranks", "ranks_per_node", "slots_per_rank", "phase", "window_steps", "window_seconds", "dispatch", "all_to_all",
    "step_tokens", "seed", "device", "dask", "overlap",
)  # fmt: skip
