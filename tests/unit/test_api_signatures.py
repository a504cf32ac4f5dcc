"""The functions of the package take what the commands take: same names, same defaults, same ranges."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import typer

import easybalance_sim as ebs
from easybalance_sim import api
from easybalance_sim.api.calls import range_of
from easybalance_sim.cli.commands import app

FUNCTIONS = (
    "plan", "replay", "sweep", "rebalance", "simulate", "capacity", "offset", "offload", "gate", "export", "explain",
    "compare", "lint", "adopt", "diff",
)  # fmt: skip
WITHOUT_FUNCTION = {
    "history", "import", "init", "precheck", "profile", "report", "rollout", "trace",
}  # fmt: skip
"""Commands for files and machines."""
OUTPUTS = {"--format", "--report", "--figures", "--figure", "--metrics", "--junit", "--github", "--quiet", "--verbose"}
"""Results have methods for them."""
LEFT_OUT = {
    ("plan", "--per-phase"),  # `plan_phases`
    ("sweep", "--output"),  # `to_json`
    ("offset", "--scenario"),  # `claim`
}
ONLY_HERE = {"progress"}
FREE_HERE = {("adopt", "output")}
"""What a command writes, a function gives back."""
NO_LIMIT_HERE = {"slots_per_rank", "window_steps"}
"""Flags that are lists in `sweep`, where they have an upper end."""


def _parameters(command: str) -> Iterator[Any]:
    for parameter in _command(command).params:
        flag = max(parameter.opts, key=len)
        if flag not in OUTPUTS and flag != "--help" and (command, flag) not in LEFT_OUT:
            yield parameter


@cache
def _commands() -> dict[str, Any]:
    root: Any = typer.main.get_command(app)
    return dict(root.commands)


def _command(name: str) -> Any:
    return _commands()[name]


def _name(parameter: Any) -> str:
    flag = max(parameter.opts, key=len)
    return str(flag.removeprefix("--").replace("-", "_")) if flag.startswith("--") else str(parameter.name)


def _said(default: Any) -> Any:
    """A default as it is meant: nothing said, numbers in a list as numbers."""
    if default is inspect.Parameter.empty:
        return "must be said"
    if isinstance(default, str) and default.isdigit():
        return int(default)
    return None if default in ("", ()) else default


def _signature(name: str) -> inspect.Signature:
    return inspect.signature(getattr(api, name))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_takes_what_its_command_takes(name: str) -> None:
    of_command = {_name(parameter): parameter.name for parameter in _parameters(name)}
    of_function = set(_signature(name).parameters) - ONLY_HERE
    assert of_function == set(of_command)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_defaults_are_those_of_the_command(name: str) -> None:
    flags = inspect.signature(_command(name).callback).parameters
    here = _signature(name).parameters
    different = {
        _name(parameter): (flags[parameter.name].default, here[_name(parameter)].default)
        for parameter in _parameters(name)
        if _name(parameter) != "traces"
        and (name, _name(parameter)) not in FREE_HERE
        and _said(flags[parameter.name].default) != _said(here[_name(parameter)].default)
    }
    assert different == {}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_ranges_are_those_of_the_flags(name: str) -> None:
    for parameter in _parameters(name):
        if not hasattr(parameter.type, "min"):
            continue
        span = range_of(name, _name(parameter))
        assert span is not None, parameter.name
        least, most = span
        assert (parameter.type.min, isinstance(least, int)) == (least, "int" in parameter.type.name)
        assert parameter.type.max == most or (parameter.type.max is None and _name(parameter) in NO_LIMIT_HERE)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_a_command_demands_a_function_demands(name: str) -> None:
    wanted = {_name(one) for one in _parameters(name) if one.required and (name, _name(one)) not in FREE_HERE}
    assert {key for key, one in _signature(name).parameters.items() if one.default is one.empty} >= wanted


def test_every_command_is_a_function_or_said_not_to_be_one() -> None:
    assert set(_commands()) == set(FUNCTIONS) | WITHOUT_FUNCTION


def test_results_and_errors_are_names_of_the_package() -> None:
    assert set(api.__all__) <= set(ebs.__all__) <= set(dir(ebs))
    for name in ebs.__all__:
        assert callable(getattr(ebs, name)), name
    assert isinstance(ebs.UsageError("x"), ebs.EbsimError)


def test_a_name_that_there_is_not_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="no attribute 'plans'"):
        ebs.plans  # noqa: B018
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        api.nothing  # noqa: B018
