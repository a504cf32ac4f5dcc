"""What all commands have in common: --quiet and --verbose wherever on the line they stand, and how they end."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup, TyperOption

from easybalance_sim.cli import voice
from easybalance_sim.cli.voice import Level

EXIT_CODES = "Also exit 2 for bad input, 70 for an internal error, 130 when interrupted."


class Group(TyperGroup):
    """Commands that take --quiet and --verbose, as the group itself does: `ebsim -q plan …` is `ebsim plan … -q`."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.params += _options()
        # Groups within this one are of this class, too, and have seen to their commands.
        for command in (one for one in self.commands.values() if not isinstance(one, Group)):
            command.params += _options()
            command.epilog = EXIT_CODES


def _options() -> list[TyperOption]:
    return [_option("-q", Level.QUIET), _option("-v", Level.VERBOSE)]


def _option(short: str, level: Level) -> TyperOption:
    said = {
        Level.QUIET: "Only the result and errors: no notes, no progress.",
        Level.VERBOSE: "Also each stage's seconds, versions and device.",
    }

    def chosen(context: Any, _option: Any, given: bool) -> None:
        if given and not context.resilient_parsing:
            voice.choose(level)

    return TyperOption(
        param_decls=[short, f"--{level.name.lower()}"],
        is_flag=True,
        default=False,
        expose_value=False,
        callback=chosen,
        help=said[level],
    )
