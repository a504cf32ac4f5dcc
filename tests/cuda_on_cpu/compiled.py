"""Compiles a `.cu` file with g++ and the shim; every kernel becomes a function over ctypes."""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

SHIM = Path(__file__).with_name("cuda_on_cpu.h")
SANITIZED = ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")

Kernel = Callable[..., None]

_ENTRY = re.compile(r'extern\s+"C"\s+__global__\s+void\s+(\w+)\s*\(([^)]*)\)')
_TYPES = {
    "unsigned char": (ctypes.c_ubyte, np.uint8),
    "unsigned short": (ctypes.c_ushort, np.uint16),
    "short": (ctypes.c_short, np.int16),
    "int": (ctypes.c_int, np.int32),
    "long long": (ctypes.c_longlong, np.int64),
    "unsigned long long": (ctypes.c_ulonglong, np.uint64),
    "Word": (ctypes.c_ulonglong, np.uint64),
    "float": (ctypes.c_float, np.float32),
    "double": (ctypes.c_double, np.float64),
}


def compiler() -> str | None:
    """Where g++ is, None without one."""
    return shutil.which("g++")


def build(source: str, folder: Path, flags: tuple[str, ...] = ()) -> dict[str, Kernel]:
    """The kernels of a source text by name, called as (grid, block, shared bytes, seed, arguments).

    Compiled once per text: the library stays in `folder`. Raises CalledProcessError when g++ refuses.
    """
    if re.search(r"(?<!extern )__shared__", source):
        raise ValueError("the shim knows shared memory only as `extern __shared__`")
    entries = [(name, _parameters(text)) for name, text in _ENTRY.findall(source)]
    library = ctypes.CDLL(str(_compiled(source + _glue(entries), folder, flags)))
    return {name: _caller(library, name, parameters) for name, parameters in entries}


def _parameters(text: str) -> list[tuple[str, str]]:
    """(type, name) of each parameter."""
    plain = (" ".join(part.replace("const", "").replace("*", "* ").split()) for part in text.split(","))
    return [(part.rpartition(" ")[0], part.rpartition(" ")[2]) for part in plain]


def _glue(entries: list[tuple[str, list[tuple[str, str]]]]) -> str:
    lines = []
    for name, parameters in entries:
        declared = ", ".join(f"{kind} {each}" for kind, each in parameters)
        call = f"{name}({', '.join(each for _, each in parameters)})"
        lines.append(
            f'\nextern "C" void {name}_cpu(unsigned grid_, unsigned block_, unsigned shared_, unsigned seed_, '
            f"{declared}) {{ on_cpu::launch(grid_, block_, shared_, seed_, [=]() {{ {call}; }}); }}"
        )
    return "".join(lines) + "\n"


def _compiled(source: str, folder: Path, flags: tuple[str, ...]) -> Path:
    text = f'#include "{SHIM}"\n{source}'
    key = hashlib.sha256("\0".join((text, SHIM.read_text(encoding="utf-8"), *flags)).encode()).hexdigest()[:16]
    library = folder / f"{key}.so"
    if not library.exists():
        folder.mkdir(parents=True, exist_ok=True)
        code = folder / f"{key}.{os.getpid()}.cpp"
        code.write_text(text, encoding="utf-8")
        command = ["g++", "-std=c++17", "-O1", "-ffp-contract=off", "-Wall", "-Wno-unused-function", "-shared", "-fPIC"]
        subprocess.run([*command, *flags, str(code), "-o", str(code.with_suffix(".so"))], check=True)
        code.with_suffix(".so").rename(library)
    return library


def _caller(library: ctypes.CDLL, name: str, parameters: list[tuple[str, str]]) -> Kernel:
    function = getattr(library, f"{name}_cpu")
    kinds = [ctypes.c_void_p if kind.endswith("*") else _TYPES[kind][0] for kind, _ in parameters]
    function.argtypes, function.restype = [*[ctypes.c_uint] * 4, *kinds], None

    def call(grid: int, block: int, shared_bytes: int, seed: int, given: tuple[Any, ...]) -> None:
        if len(given) != len(parameters):
            raise TypeError(f"{name} takes {len(parameters)} arguments, not {len(given)}")
        function(grid, block, shared_bytes, seed, *(_passed(*each) for each in zip(given, parameters, strict=True)))

    return call


def _passed(value: Any, parameter: tuple[str, str]) -> Any:
    """A pointer or a scalar, of exactly the parameter's type: a device checks none."""
    kind, name = parameter
    points, wanted = kind.endswith("*"), np.dtype(_TYPES[kind.rstrip("* ")][1])
    if isinstance(value, np.ndarray) != points or getattr(value, "dtype", None) != wanted:
        raise TypeError(f"{name} is {kind}, not {type(value).__name__} {getattr(value, 'dtype', '')}")
    return value.ctypes.data if points else value.item()
