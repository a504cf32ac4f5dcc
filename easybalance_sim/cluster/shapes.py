"""Shapes of MoE models: a table of known ones, Hugging Face config.json, or what a trace's metadata says."""

from __future__ import annotations

import re
import tomllib
from dataclasses import replace
from functools import cache
from importlib import resources
from pathlib import Path

import msgspec

from easybalance_sim.cluster.attention_shape import AttentionShape
from easybalance_sim.cluster.config_json import read_config, read_model_type
from easybalance_sim.cluster.model_shape import WEIGHT_BYTES, ModelShape, weight_dtype
from easybalance_sim.errors import ProfileError, did_you_mean

__all__ = ["WEIGHT_BYTES", "ModelShape", "assumed_shape", "find_shape", "load_shape", "model_names", "weight_dtype"]

OTHER_TYPE = "other"
"""`model_type` of known models of which no file format hangs on it."""

STAND_IN_HIDDEN, STAND_IN_INTERMEDIATE = 4096, 1536
"""Widths of `assumed_shape`: those of Qwen3-235B-A22B, the middle of the known models."""

_HARMLESS_TAIL = re.compile(r"base|instruct|chat|thinking|exp|zero|terminus|hf|dynamic|it|\d{4}|v\d+(\.\d+)?")
_DTYPE_TAIL = {
    "bf16": "bf16",
    "fp8": "fp8_block",
    "nvfp4": "nvfp4",
    "fp4": "nvfp4",
    "mxfp4": "mxfp4",
    "int4": "int4_g32",
    "w4a16": "int4_g32",
    "awq": "int4_g32",
}


class _Row(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    name: str
    aliases: list[str] = []
    model_type: str = ""
    layers: str
    hidden_layers: int
    mtp_layers: str = ""
    experts: int
    top_k: int
    groups: int = 1
    topk_groups: int = 1
    hidden: int
    intermediate: int
    shared_experts: int = 0
    matrices: int = 3
    dtype: str
    kv_bytes_per_token: int = 0
    attention: AttentionShape | None = None
    model_width: int = 0
    dense_intermediate: int = 0
    shared_intermediate: int = 0
    vocab: int = 0
    source: str


def model_names() -> tuple[str, ...]:
    """Names of the known models, sorted; aliases are left out."""
    return tuple(sorted(row.name for row in _rows()))


def load_shape(name_or_path: str) -> ModelShape:
    """The shape of a known model (any case; aliases; a dtype suffix such as `-fp8` or `-bf16` overrides the dtype), or
    of a Hugging Face `config.json` or the folder that holds one.

    Raises `ProfileError`: unknown name (the names are listed), file that cannot be read, key that is missing.
    """
    config = _config_of(name_or_path)
    if config is not None:
        return read_config(config)
    shape = find_shape(name_or_path)
    if shape is None:
        names = ", ".join(model_names())
        fix = f"{did_you_mean(name_or_path, _by_name())}or give a config.json"
        raise ProfileError(f"unknown model; known are {names}", where=name_or_path, fix=fix)
    return shape


def model_type(name_or_path: str) -> str:
    """The `model_type` that a `config.json` says; of a known model where a file format hangs on it, else `OTHER_TYPE`.

    "" = not known: a config that names none, a model that is not known.

    Raises `ProfileError` for a file that cannot be read.
    """
    config = _config_of(name_or_path)
    if config is not None:
        return read_model_type(config)
    shape = find_shape(name_or_path)
    return "" if shape is None else _by_name()[shape.name].model_type or OTHER_TYPE


def _config_of(name_or_path: str) -> Path | None:
    """The `config.json` that is meant, None where a name is."""
    path = Path(name_or_path)
    if path.suffix == ".json":
        return path
    return path / "config.json" if (path / "config.json").is_file() else None


def find_shape(model_name: str) -> ModelShape | None:
    """The shape of a model named as people name checkpoints ("openai/gpt-oss-20b", "DeepSeek-V3-0324"), or None.

    The organisation, a date and words such as "instruct" do not matter; a dtype word at the end overrides the dtype.
    Any other addition ("-flash", "-distill-…") means another model, hence None.
    """
    words = _words(model_name)
    for length in range(len(words), 0, -1):
        row = _by_name().get("-".join(words[:length]))
        if row is not None:
            return _named(row, words[length:])
    return None


def assumed_shape(
    layers: tuple[int, ...], experts: int, top_k: int, groups: int = 1, topk_groups: int = 1
) -> ModelShape:
    """A stand-in for an unknown model: the routing numbers are the trace's, the widths are a guess (`assumed=True`)."""
    return ModelShape(
        name="unknown model",
        layers=layers,
        experts=experts,
        top_k=top_k,
        groups=groups,
        topk_groups=topk_groups,
        hidden=STAND_IN_HIDDEN,
        intermediate=STAND_IN_INTERMEDIATE,
        assumed=True,
        source="widths assumed, those of Qwen3-235B-A22B",
    )


def _words(model_name: str) -> list[str]:
    last = model_name.strip().rstrip("/").rsplit("/", 1)[-1]
    return last.lower().replace("_", "-").replace(" ", "-").split("-")


def _named(row: _Row, tail: list[str]) -> ModelShape | None:
    dtype = row.dtype
    for word in tail:
        if word in _DTYPE_TAIL:
            dtype = _DTYPE_TAIL[word]
        elif not _HARMLESS_TAIL.fullmatch(word):
            return None
    return replace(_shape(row), dtype=dtype)


def _shape(row: _Row) -> ModelShape:
    fields = msgspec.structs.asdict(row)
    del fields["aliases"], fields["model_type"]
    return ModelShape(**fields | {name: _layer_ids(fields[name]) for name in ("layers", "mtp_layers")})


def _layer_ids(text: str) -> tuple[int, ...]:
    """Ids from "3-60", "1-47/2" (every second), or a list of both: "1,3,5-9"."""
    ids: list[int] = []
    for part in text.split(",") if text else ():
        span, _, step = part.partition("/")
        first, _, last = span.partition("-")
        ids.extend(range(int(first), int(last or first) + 1, int(step or 1)))
    return tuple(ids)


@cache
def _rows() -> tuple[_Row, ...]:
    text = resources.files("easybalance_sim.cluster").joinpath("models.toml").read_text(encoding="utf-8")
    return tuple(msgspec.convert(tomllib.loads(text)["model"], list[_Row]))


@cache
def _by_name() -> dict[str, _Row]:
    return {name: row for row in _rows() for name in (row.name, *row.aliases)}
