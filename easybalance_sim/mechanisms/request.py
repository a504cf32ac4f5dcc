"""What `ebsim offset` is asked for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from easybalance_sim.errors import UsageError, did_you_mean
from easybalance_sim.files import require_place
from easybalance_sim.planning.session import Settings, require_choice
from easybalance_sim.simulate.offsets.controllers import LAWS, SIGNALS, WITHOUT_LIMIT
from easybalance_sim.simulate.replica_choice.rules import RULES

PARTS = ("sensing", "feedback", "rerouting", "replicas", "staggering", "queue", "admission")
"""What a run may look at; the front and what it rests on are always there."""

FEWEST_STEPS = 4
"""Windows of a sensor that judged steps have to hold at least."""


@dataclass(frozen=True, kw_only=True)
class OffsetRequest:
    """settings: trace, cluster, model · plan: the placement that mechanisms act on, None = the engine's own · past:
    traffic that placements are made from, empty = the first half of the trace · steps, past_steps: ids of the first
    step that takes part and of the first that does not (None = to the end), None = all · warm_up: steps in which
    sensors start and nothing is scored · sensor_ms: window of the sensor · step_ms: length of a step, None = as
    recorded · delay: steps until a count is seen, at least 1 · controller, gain: one router offset instead of the usual
    ones · cap: rank cap of in-step re-routing instead of the usual ones · force: a gain beyond the safe ones is
    simulated all the same · choice_us: (rule, µs of a layer) that choosing replicas is charged instead of what the
    table says · parts: names of `PARTS`, empty = all, admission only where there are nodes · output: the lossy file ·
    plan_output: the staggered plan · figure: an SVG."""

    settings: Settings
    plan: Path | None = None
    past: tuple[Path, ...] = ()
    steps: tuple[int, int | None] | None = None
    past_steps: tuple[int, int | None] | None = None
    warm_up: int = 40
    sensor_ms: float = 300.0
    step_ms: float | None = None
    delay: int = 1
    controller: str = ""
    gain: float | None = None
    cap: float | None = None
    force: bool = False
    choice_us: tuple[tuple[str, float], ...] = ()
    parts: tuple[str, ...] = ()
    output: Path | None = None
    plan_output: Path | None = None
    figure: Path | None = None

    def inputs(self) -> tuple[Path, ...]:
        """Files that the run reads and must not write over."""
        settings = self.settings
        profile = Path(settings.profile) if settings.profile else None
        given = (*settings.traces, *self.past, settings.cluster, self.plan, profile)
        return tuple(path for path in given if path is not None)


def require_sound(request: OffsetRequest) -> None:
    """Refuse what would only be noticed after a long run: unknown names, numbers without sense, places that cannot be
    written."""
    for part in request.parts:
        require_choice("--part", part, PARTS)
    for flag, value in (("--sensor-ms", request.sensor_ms), ("--step-ms", request.step_ms), ("--gain", request.gain)):
        if value is not None and not (math.isfinite(value) and value > 0):
            raise UsageError(f"{value} is no positive number", where=flag)
    if request.cap is not None and not (math.isfinite(request.cap) and request.cap >= 1):
        raise UsageError(
            f"a rank cap of {request.cap:g} × the mean leaves no room",
            where="--cap",
            fix="give 1 or more; 1.05 is the least that was measured",
        )
    for rule, us in request.choice_us:
        require_choice("--choice-us", rule, tuple(RULES))
        if not (math.isfinite(us) and us >= 0):
            raise UsageError(f"{us} µs for {rule} is no time", where="--choice-us")
    if request.past_steps is not None and not request.past:
        raise UsageError("steps of which past?", where="--past-steps", fix="name its trace with --past")
    if request.gain is not None and not request.controller:
        raise UsageError("a gain of which controller?", where="--gain", fix="name it with --controller")
    if request.controller:
        _require_controller(request.controller, request.gain)
    if request.controller and request.cap is not None:
        raise UsageError("a controller or a cap, not both", where="--cap", fix="leave one out")
    if request.parts:
        _require_parts(request)
    if request.output is not None and not (request.controller or request.cap is not None):
        raise UsageError(
            "which mechanism is to be written?", where="--output", fix="choose one with --controller or --cap"
        )
    if request.plan_output is not None and (request.past or (request.parts and "staggering" not in request.parts)):
        raise UsageError(
            "a staggered plan is made by the part staggering, of the first half of its own trace",
            where="--stagger-output",
            fix="leave out --past, and --part unless it names staggering",
        )
    wanted = {"-o": request.output, "--stagger-output": request.plan_output, "--figure": request.figure}
    written = {flag: path for flag, path in wanted.items() if path is not None}
    if len({path.absolute() for path in written.values()}) < len(written):
        raise UsageError("two results in one file", where=str(next(iter(written.values()))), fix="give each its own")
    for flag, path in written.items():
        require_place(path, keep=request.inputs(), flag=flag)
    if request.figure is not None and request.figure.suffix != ".svg":
        raise UsageError(f"{request.figure} is not an .svg file", where="--figure")


def controller_of(name: str) -> tuple[str, str]:
    """Signal and law of "layer-P". Raises `UsageError` for anything else."""
    signal, _, law = name.partition("-")
    if signal not in SIGNALS or law not in LAWS:
        known = [f"{one}-{other}" for one in SIGNALS for other in LAWS]
        raise UsageError(
            f"no controller {name!r}",
            where="--controller",
            fix=f"{did_you_mean(name, known)}{', '.join(SIGNALS)}, a hyphen, and {', '.join(LAWS)}: layer-P",
        )
    return signal, law


def _require_controller(name: str, gain: float | None) -> None:
    _, law = controller_of(name)
    if gain is None and law in WITHOUT_LIMIT:
        raise UsageError(f"{law} has no safe gain to choose", where="--controller", fix="give it with --gain")


def _require_parts(request: OffsetRequest) -> None:
    """A controller acts in feedback, a cap in rerouting, times of choosing in replicas."""
    for flag, wanted, part in (
        ("--controller", bool(request.controller), "feedback"),
        ("--cap", request.cap is not None, "rerouting"),
        ("--choice-us", bool(request.choice_us), "replicas"),
    ):
        if wanted and part not in request.parts:
            raise UsageError(f"needs the part {part}", where=flag, fix=f"add --part {part}, or leave out --part")
