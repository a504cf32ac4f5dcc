"""What was likely meant by a command, an option or a choice that does not exist."""

from __future__ import annotations

import re
from typing import Any

from easybalance_sim.errors import did_you_mean

_NO_COMMAND = re.compile(r"No such command '(?P<said>[^']*)'")
_NO_CHOICE = re.compile(r"'(?P<said>[^']*)' is not one of (?P<known>'.*')")


def suggesting(error: Any) -> str:
    """The line of a usage error of typer, with the name that was likely meant, whatever its release guesses itself."""
    message = str(error.format_message()).rstrip()
    if hasattr(error, "option_name") and hasattr(error, "possibilities"):
        options = [name for option in error.ctx.command.params for name in option.opts] if error.ctx else []
        return _with(f"No such option: {error.option_name}", error.option_name, [*options, "--help"])
    if (found := _NO_COMMAND.match(message)) is not None:
        return _with(found[0], found["said"], [*getattr(error.ctx.command, "commands", ())] if error.ctx else [])
    if (found := _NO_CHOICE.search(message)) is not None:
        return _with(message, found["said"], re.findall(r"'([^']*)'", found["known"]))
    return message


def _with(message: str, said: str, known: list[str]) -> str:
    meant = did_you_mean(said, known).rstrip()
    return f"{message.rstrip('.')} — {meant}" if meant else message
