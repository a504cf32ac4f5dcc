"""Requests through an engine, step by step as naive loops: the specification of `numba_serving`.

The data-parallel ranks step together. A request waits in the queue of one rank, is given cache for all its tokens when
it is admitted, computes its prompt in chunks, then a token per step, and leaves. A rank whose cache has no block left
for the next token of a request takes that of the request that it admitted last, which starts over at the head of the
queue. Fewer blocks are free then than it had, so nobody is admitted in such a step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields

from easybalance_sim.kernels.reference_serving_seconds import RankStep, step_seconds
from easybalance_sim.kernels.serving_state import (
    AFFINITY,
    DECODE_ONLY,
    DECODING,
    DONE,
    FULL,
    GONE,
    NOBODY,
    PREFILL_FIRST,
    PREFILL_ONLY,
    PROMPT,
    RECORDED,
    ROUND_ROBIN,
    RUNNING,
    STUCK,
    WAITING,
    Model,
    Rules,
    State,
)


def serve_steps(model: Model, rules: Rules, state: State, steps: int, recorded: int) -> int:
    """Goes on from `state` for some steps; those in which all ranks idle are none.

    recorded: number of the step whose requests are written down, after which it stops; -1 for none.
    Returns why it stopped, one of the constants of `serving_state`.
    """
    engine = _Engine(model, rules, state)
    why = engine.run(steps, recorded)
    engine.put_back()
    return why


@dataclass(kw_only=True)
class _Request:
    """Named as in `REQUEST`."""

    number: int
    arrival: float
    prompt: int
    output: int
    cached: int
    home: int
    prefill: int
    decode: int
    start: float
    first: float
    finish: float
    left: int
    held: int
    blocks: int
    room: int
    rank: int
    preemptions: int
    stage: int
    refused: int

    @property
    def known(self) -> int:
        return self.prompt + self.output - self.left

    def came_with(self, role: int) -> int:
        """Tokens in cache that it did not compute here."""
        if self.preemptions:
            return 0
        return self.prompt if role == DECODE_ONLY else self.cached


OWN = tuple(each.name for each in fields(_Request) if each.name != "number")


@dataclass
class _Rank:
    """waiting: its queue · running: requests that hold cache in order of admission."""

    free: int
    waiting: list[_Request] = field(default_factory=list)
    running: list[_Request] = field(default_factory=list)
    step: RankStep = field(default_factory=RankStep)

    @property
    def load(self) -> int:
        return sum(request.known for request in self.waiting + self.running)

    @property
    def decoding(self) -> list[_Request]:
        return [request for request in self.running if request.stage == DECODING]


class _Engine:
    def __init__(self, model: Model, rules: Rules, state: State) -> None:
        self.model, self.rules, self.state = model, rules, state
        self.totals, self.seconds = state.totals[0], state.seconds[0]
        records = [{name: row[name].item() for name in OWN} for row in state.requests]
        self.requests = [_Request(number=i, **record) for i, record in enumerate(records)]
        self.ranks = [_Rank(int(row["free"])) for row in state.ranks]
        self.chunks: list[tuple[_Request, int, int]] = []
        for rank, row, slots in zip(self.ranks, state.ranks, state.slots, strict=True):
            rank.running = [self.requests[i] for i in slots[: row["running"]]]
            i = int(row["head"])
            while i != NOBODY:
                rank.waiting.append(self.requests[i])
                i = int(state.requests["behind"][i])

    def run(self, steps: int, recorded: int) -> int:
        totals, last = self.totals, self.totals["step"] + steps
        while totals["step"] < last:
            while totals["arrived"] < len(self.requests) and self.upcoming <= totals["now"]:
                self.arrive(self.requests[totals["arrived"]])
            if (totals["present"] == 0 and self.upcoming == math.inf) or totals["now"] >= self.rules.end_s:
                return DONE
            if totals["present"] == 0:
                until = min(self.upcoming, self.rules.end_s)
                self.seconds["idle"] += until - totals["now"]
                totals["now"] = until
                continue
            bucket = int(totals["now"] / self.rules.bucket_s)
            if bucket >= len(self.state.buckets):
                return FULL
            if not self.step(bucket, totals["step"] == recorded):
                return STUCK
            if totals["step"] == recorded + 1:
                return RECORDED
        return RUNNING

    @property
    def upcoming(self) -> float:
        """When the next request arrives."""
        arrived = self.totals["arrived"]
        return self.requests[arrived].arrival if arrived < len(self.requests) else math.inf

    def blocks(self, tokens: int) -> int:
        return math.ceil(tokens / self.rules.block_tokens)

    def arrive(self, request: _Request) -> None:
        totals, rules = self.totals, self.rules
        number = self.routed(request)
        rank = self.ranks[number]
        totals["arrived"] += 1
        totals["turn"] += 1
        most = request.prompt + (0 if rules.role == PREFILL_ONLY else request.output - 1)
        if self.blocks(most) > rules.kv_blocks or (rules.waiting and len(rank.waiting) >= rules.waiting):
            request.refused = 1
            totals["refused"] += 1
            totals["too_long"] += self.blocks(most) > rules.kv_blocks
            return
        request.rank = number
        request.left = request.output - (rules.role == DECODE_ONLY)
        if request.left == 0:
            request.start = request.first = request.finish = request.arrival
            totals["finished"] += 1
            return
        totals["present_s"] += totals["now"] - request.arrival
        totals["present"] += 1
        request.stage = WAITING
        rank.waiting.append(request)

    def routed(self, request: _Request) -> int:
        """The rank that a request goes to."""
        rules = self.rules
        if rules.router == ROUND_ROBIN:
            return int(self.totals["turn"] % len(self.ranks))
        has_room = not rules.waiting or len(self.ranks[request.home].waiting) < rules.waiting
        if rules.router == AFFINITY and has_room:
            return request.home
        loads = [rank.load for rank in self.ranks]
        return loads.index(min(loads))

    def step(self, bucket: int, note: bool) -> bool:
        """One step; False where it has no tokens."""
        self.put_together()
        decoding = [request for rank in self.ranks if rank.step.decodes for request in rank.decoding]
        tokens = [(row, count) for _, row, count in self.chunks] + [(request.decode, 1) for request in decoding]
        if not tokens:
            return False
        if note:
            self.note(decoding)
        spent = step_seconds(self.model, int(self.totals["step"]), [rank.step for rank in self.ranks], tokens)
        for name, seconds in spent.parts.items():
            self.seconds[name] += seconds
        self.state.busy[bucket] += spent.busy
        self.account(bucket, spent.total)
        for rank in self.ranks:
            self.advance(rank)
        self.totals["step"] += 1
        return True

    def put_together(self) -> None:
        """Schedules the next step."""
        self.chunks = []
        for rank in self.ranks:
            rank.step = RankStep()
            if self.rules.schedule == PREFILL_FIRST and self.rules.role != DECODE_ONLY:
                self.prompts(rank)
                if not rank.step.served:
                    self.decode(rank)
            else:
                self.decode(rank)
                self.prompts(rank)

    def decode(self, rank: _Rank) -> None:
        for request in list(rank.running):
            if request.stage != DECODING:
                continue
            if request.room == 0:
                while rank.free == 0 and request.stage == DECODING:
                    self.preempt(rank, rank.running[-1])
                if request.stage != DECODING:
                    break
                rank.free -= 1
                request.blocks += 1
                request.room = self.rules.block_tokens
            request.room -= 1
        decoding = rank.decoding
        rank.step.decodes = True
        rank.step.tokens = rank.step.served = len(decoding)
        rank.step.reads = sum(request.known for request in decoding)

    def preempt(self, rank: _Rank, request: _Request) -> None:
        held = request.known - 1 if request.stage == DECODING else request.held
        self.totals["dropped"] += held - request.came_with(self.rules.role)
        request.preemptions += 1
        request.stage = WAITING
        rank.free += request.blocks
        rank.running.remove(request)
        rank.waiting.insert(0, request)

    def prompts(self, rank: _Rank) -> None:
        for request in rank.running:
            if request.stage == PROMPT:
                self.take_chunk(rank, request)
        while (
            rank.waiting
            and rank.step.tokens < self.rules.batch_tokens
            and len(rank.running) < self.rules.running
            and self.blocks(rank.waiting[0].known) <= rank.free
        ):
            request = rank.waiting.pop(0)
            self.admit(rank, request)
            self.take_chunk(rank, request)

    def admit(self, rank: _Rank, request: _Request) -> None:
        request.blocks = self.blocks(request.known)
        request.room = request.blocks * self.rules.block_tokens - request.known
        request.held = request.came_with(self.rules.role)
        request.stage = PROMPT
        rank.free -= request.blocks
        rank.running.append(request)
        if math.isnan(request.start):
            request.start = float(self.totals["now"])

    def take_chunk(self, rank: _Rank, request: _Request) -> None:
        left = self.rules.batch_tokens - rank.step.tokens
        take = min(left, self.rules.chunk_tokens, request.known - request.held)
        if take == 0:
            return
        if self.rules.role == DECODE_ONLY and request.preemptions == 0:
            row = request.decode
            rank.step.reads += request.held + take
        else:
            row = request.prefill
            rank.step.pairs += take * (request.held + 0.5 * take)
        request.held += take
        rank.step.tokens += take
        rank.step.served += 1
        self.chunks.append((request, row, take))

    def account(self, bucket: int, step: float) -> None:
        """The step into the timeline and the sums over the run."""
        row, totals = self.state.buckets[bucket], self.totals
        blocks = self.rules.kv_blocks * len(self.ranks)
        row["tokens"] += sum(rank.step.tokens for rank in self.ranks)
        row["steps"] += 1
        row["step_s"] += step
        row["running"] += sum(len(rank.running) for rank in self.ranks) * step
        row["waiting"] += sum(len(rank.waiting) for rank in self.ranks) * step
        row["kv"] += (1 - sum(rank.free for rank in self.ranks) / blocks) * step
        totals["waited"] += sum(bool(rank.waiting) or rank.step.served < len(rank.running) for rank in self.ranks)
        totals["prompt_tokens"] += sum(count for _, _, count in self.chunks)
        totals["present_s"] += totals["present"] * step
        totals["now"] += step

    def advance(self, rank: _Rank) -> None:
        """What the step that just ended did to the requests of a rank."""
        for request in list(rank.running):
            if request.stage == DECODING and rank.step.decodes:
                self.totals["decode_tokens"] += 1
                request.left -= 1
            elif request.stage == PROMPT and request.held == request.known:
                request.left -= 1
                request.stage = DECODING
                if math.isnan(request.first):
                    request.first = float(self.totals["now"])
                if self.rules.role == PREFILL_ONLY:
                    self.leave(rank, request)
                    continue
            if request.stage == DECODING and request.left == 0:
                self.leave(rank, request)

    def leave(self, rank: _Rank, request: _Request) -> None:
        request.finish = float(self.totals["now"])
        request.stage = GONE
        rank.free += request.blocks
        rank.running.remove(request)
        self.totals["finished"] += 1
        self.totals["present"] -= 1

    def note(self, decoding: list[_Request]) -> None:
        """Writes down what is in the step."""
        self.totals["chunks"], self.totals["noted"] = len(self.chunks), len(decoding)
        self.state.noted[: len(decoding)] = [request.number for request in decoding]
        for place, (request, row, count) in enumerate(self.chunks):
            self.state.chunks[place] = (request.number, row, count)

    def put_back(self) -> None:
        """What a later call goes on from."""
        requests = self.state.requests
        for name in OWN:
            requests[name] = [getattr(request, name) for request in self.requests]
        for row, slots, rank in zip(self.state.ranks, self.state.slots, self.ranks, strict=True):
            queue = [request.number for request in rank.waiting]
            row["free"], row["load"], row["running"], row["queued"] = (
                rank.free,
                rank.load,
                len(rank.running),
                len(queue),
            )
            row["head"], row["tail"] = (queue[0], queue[-1]) if queue else (NOBODY, NOBODY)
            requests["behind"][queue] = [*queue[1:], NOBODY][: len(queue)]
            slots[: len(rank.running)] = [request.number for request in rank.running]
