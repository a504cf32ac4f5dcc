"""Replies of serving engines as they were stored, each with the experts of its tokens as a base64 text.

SGLang puts `routed_experts` into `meta_info` (`/generate`) or `choices[].sgl_ext`, vLLM into `choices[]`.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from easybalance_sim.errors import TraceError
from easybalance_sim.trace.json_documents import Document, decoded, documents


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What one request got back.

    where: for messages · name: the engine's id and choice, "" when it has none · group: number of the document, which
    its choices share · blob: the bytes behind `routed_experts`, empty when there are none · prompt, completion: their
    tokens · start: position of the first recorded token · cached: prompt tokens from the prefix cache. None: not said.
    """

    where: str
    name: str
    group: int
    workload: str
    model: str
    blob: bytes
    prompt: int | None
    completion: int | None
    start: int | None
    cached: int


class _CachedTokens(msgspec.Struct):
    cached_tokens: int | None = None


class _Counts(msgspec.Struct, kw_only=True):
    id: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    prompt_tokens_details: _CachedTokens | None = None
    routed_experts: str | None = None
    routed_experts_start_len: int | None = None


class _Choice(msgspec.Struct, kw_only=True):
    index: int = 0
    routed_experts: str | None = None
    sgl_ext: _Counts | None = None
    sglext: _Counts | None = None


class _Document(msgspec.Struct, kw_only=True):
    id: str | None = None
    model: str | None = None
    meta_info: _Counts | None = None
    choices: list[_Choice] = []
    usage: _Counts | None = None
    routed_experts_start_len: int | None = None
    routed_experts_prompt_start: int | None = None


def replies(source: Path) -> Iterator[Reply]:
    """The replies of a `.json` (one, or a list) or `.jsonl` file, or of a folder of them.

    Raises `TraceError` for what is no reply, and for one that is given twice.
    """
    seen: dict[str, str] = {}
    group = 0
    for document in documents(source):
        content: _Document | list[_Document] = decoded(document, _Document | list[_Document], "a reply of an engine")
        for number, one in enumerate(content if isinstance(content, list) else [content]):
            place = f"{document.where}, reply {number}" if isinstance(content, list) else document.where
            for reply in _replies(document, one, place, group):
                if reply.name and reply.name in seen:
                    raise TraceError(
                        f"request {reply.name[:80]!r} was already in {seen[reply.name]}",
                        where=reply.where,
                        fix="drop one",
                    )
                seen[reply.name] = reply.where
                yield reply
            group += 1


def _replies(document: Document, one: _Document, place: str, group: int) -> Iterator[Reply]:
    if one.meta_info is None and not one.choices:
        raise TraceError(
            "neither meta_info nor choices, so this is no reply of SGLang or vLLM",
            where=place,
            fix="store the engine's whole reply",
        )
    if one.meta_info is not None:
        yield _reply(document, one, place, group, one.meta_info.routed_experts, one.meta_info, one.meta_info.id or "")
    # Usage is summed over choices and over prompts, so that it says nothing of one among several.
    counts = (one.usage if len(one.choices) == 1 else None) or _Counts()
    for choice in one.choices:
        where = place if len(one.choices) == 1 else f"{place}, choice {choice.index}"
        extra = choice.sgl_ext or choice.sglext
        text = extra.routed_experts if extra else None
        name = f"{one.id}/{choice.index}" if one.id else ""
        yield _reply(document, one, where, group, choice.routed_experts or text, counts, name)


def _reply(
    document: Document, one: _Document, where: str, group: int, text: str | None, counts: _Counts, name: str
) -> Reply:
    details = counts.prompt_tokens_details or _CachedTokens()
    told = (counts.routed_experts_start_len, one.routed_experts_start_len, one.routed_experts_prompt_start)
    return Reply(
        where=where,
        name=name,
        group=group,
        workload=document.workload,
        model=one.model or "",
        blob=_bytes(text or "", where),
        prompt=_count("prompt_tokens", counts.prompt_tokens, where),
        completion=_count("completion_tokens", counts.completion_tokens, where),
        start=_count("routed_experts_start_len", next((n for n in told if n is not None), None), where),
        cached=_count("cached_tokens", counts.cached_tokens or details.cached_tokens, where) or 0,
    )


def _bytes(text: str, where: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise TraceError(
            "routed_experts is no base64 text, or was cut", where=where, fix="store the whole reply"
        ) from error


def _count(name: str, value: int | None, where: str) -> int | None:
    if value is not None and not 0 <= value < 2**31:
        raise TraceError(f"{name} is {value}", where=where, fix="store the reply as the engine sent it")
    return value
