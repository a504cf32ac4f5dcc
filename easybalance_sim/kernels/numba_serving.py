"""Requests through an engine step by step, compiled; specification in `reference_serving`."""

from __future__ import annotations

import numpy as np

from easybalance_sim.kernels.bare import bare_njit
from easybalance_sim.kernels.numba_serving_seconds import add_rows, rebuild, step_seconds
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
    REBUILD_STEPS,
    RECORDED,
    ROUND_ROBIN,
    RUNNING,
    STUCK,
    WAITING,
)


@bare_njit()
def _known(request):  # type: ignore[no-untyped-def]
    """Tokens of a request so far: its prompt and what it was answered."""
    return np.int64(request.prompt) + request.output - request.left


@bare_njit()
def _blocks(tokens, rules):  # type: ignore[no-untyped-def]
    return (tokens + rules.block_tokens - 1) // rules.block_tokens


@bare_njit()
def _came_with(request, rules):  # type: ignore[no-untyped-def]
    """Tokens in cache that a request did not compute here."""
    if request.preemptions > 0:
        return 0
    return request.prompt if rules.role == DECODE_ONLY else request.cached


@bare_njit()
def _routed(request, rules, state):  # type: ignore[no-untyped-def]
    """The rank that a request goes to."""
    ranks = state.ranks
    if rules.router == ROUND_ROBIN:
        return state.totals[0].turn % len(ranks)
    if rules.router == AFFINITY and (rules.waiting == 0 or ranks[request.home].queued < rules.waiting):
        return np.int64(request.home)
    least = 0
    for d in range(1, len(ranks)):
        if ranks[d].load < ranks[least].load:
            least = d
    return least


@bare_njit()
def _arrive(i, rules, state):  # type: ignore[no-untyped-def]
    request, totals = state.requests[i], state.totals[0]
    most = request.prompt + (0 if rules.role == PREFILL_ONLY else request.output - 1)
    too_long = _blocks(most, rules) > rules.kv_blocks
    d = _routed(request, rules, state)
    rank = state.ranks[d]
    totals.arrived += 1
    totals.turn += 1
    if too_long or (rules.waiting > 0 and rank.queued >= rules.waiting):
        request.refused = 1
        totals.refused += 1
        totals.too_long += too_long
        return
    request.rank = d
    request.left = request.output - (1 if rules.role == DECODE_ONLY else 0)
    if request.left == 0:
        request.start = request.first = request.finish = request.arrival
        totals.finished += 1
        return
    totals.present_s += totals.now - request.arrival
    totals.present += 1
    rank.load += _known(request)
    request.stage = WAITING
    request.behind = NOBODY
    if rank.head == NOBODY:
        rank.head = i
    else:
        state.requests[rank.tail].behind = i
    rank.tail = i
    rank.queued += 1


@bare_njit()
def _start_decoding(request, rank, model, state):  # type: ignore[no-untyped-def]
    request.stage = DECODING
    rank.context += _known(request)
    state.totals[0].decoders += 1
    add_rows(state.sums[request.rank % len(state.sums)], model, request.decode, 1.0)


@bare_njit()
def _stop_decoding(request, rank, model, state):  # type: ignore[no-untyped-def]
    """Takes a request's share out of the sums, which are exactly 0 when there is none."""
    rank.context -= _known(request)
    state.totals[0].decoders -= 1
    if state.totals[0].decoders == 0:
        state.sums[:] = 0.0
    else:
        add_rows(state.sums[request.rank % len(state.sums)], model, request.decode, -1.0)


@bare_njit()
def _preempt_last(d, model, rules, state):  # type: ignore[no-untyped-def]
    """The request that rank d admitted last goes back to the head of the queue without its cache; returns it."""
    rank = state.ranks[d]
    rank.running -= 1
    i = state.slots[d, rank.running]
    request = state.requests[i]
    held = np.int64(request.held)
    if request.stage == DECODING:
        held = _known(request) - 1
        _stop_decoding(request, rank, model, state)
    state.totals[0].dropped += held - _came_with(request, rules)
    request.preemptions += 1
    request.stage = WAITING
    rank.free += request.blocks
    request.behind = rank.head
    if rank.head == NOBODY:
        rank.tail = i
    rank.head = i
    rank.queued += 1
    return i


@bare_njit()
def _decode(d, model, rules, state):  # type: ignore[no-untyped-def]
    """Every decoding request of rank d takes a place in its cache; a new block where there is none, if need be from the
    request that was admitted last."""
    rank, k = state.ranks[d], 0
    while k < rank.running:
        i = state.slots[d, k]
        request = state.requests[i]
        k += 1
        if request.stage != DECODING:
            continue
        if request.room == 0:
            victim = NOBODY
            while rank.free == 0 and victim != i:
                victim = _preempt_last(d, model, rules, state)
            if victim == i:
                break
            rank.free -= 1
            request.blocks += 1
            request.room = rules.block_tokens
        request.room -= 1
        rank.tokens += 1
        rank.served += 1
    rank.reads = rank.context
    rank.decodes = 1


@bare_njit()
def _take_chunk(i, d, budget, rules, state):  # type: ignore[no-untyped-def]
    """Takes prompt tokens of a request into the step; returns how many."""
    request, rank = state.requests[i], state.ranks[d]
    take = min(budget, rules.chunk_tokens, _known(request) - request.held)
    handed_over = rules.role == DECODE_ONLY and request.preemptions == 0
    chunk = state.chunks[state.totals[0].chunks]
    state.totals[0].chunks += 1
    chunk.request, chunk.tokens = i, take
    if handed_over:
        chunk.row = request.decode
        rank.reads += request.held + take
    else:
        chunk.row = request.prefill
        rank.pairs += take * (request.held + 0.5 * take)
    request.held += take
    rank.tokens += take
    rank.served += 1
    return take


@bare_njit()
def _admit(d, rules, state):  # type: ignore[no-untyped-def]
    """The head of rank d's queue gets cache for all its tokens; False where there is no room."""
    rank = state.ranks[d]
    i = rank.head
    request = state.requests[i]
    known = _known(request)
    blocks = _blocks(known, rules)
    if blocks > rank.free:
        return False
    rank.head = request.behind
    rank.queued -= 1
    rank.free -= blocks
    request.blocks = blocks
    request.room = blocks * rules.block_tokens - known
    request.held = _came_with(request, rules)
    request.stage = PROMPT
    if np.isnan(request.start):
        request.start = state.totals[0].now
    state.slots[d, rank.running] = i
    rank.running += 1
    return True


@bare_njit()
def _prompts(d, rules, state):  # type: ignore[no-untyped-def]
    """Chunks of prompts into the step, first come first served: those begun, then new ones."""
    rank = state.ranks[d]
    budget = rules.batch_tokens - rank.tokens
    for k in range(rank.running):
        i = state.slots[d, k]
        if budget > 0 and state.requests[i].stage == PROMPT:
            budget -= _take_chunk(i, d, budget, rules, state)
    while budget > 0 and rank.head != NOBODY and rank.running < rules.running:
        if not _admit(d, rules, state):
            break
        budget -= _take_chunk(state.slots[d, rank.running - 1], d, budget, rules, state)


@bare_njit()
def _put_together(model, rules, state):  # type: ignore[no-untyped-def]
    """Schedules the next step; returns how many requests are in it."""
    prompts_alone = rules.schedule == PREFILL_FIRST and rules.role != DECODE_ONLY
    served = 0
    state.totals[0].chunks = 0
    for d in range(len(state.ranks)):
        rank = state.ranks[d]
        rank.tokens, rank.reads, rank.pairs, rank.served, rank.decodes = 0, 0, 0.0, 0, 0
        if not prompts_alone:
            _decode(d, model, rules, state)
        _prompts(d, rules, state)
        if prompts_alone and rank.served == 0:
            _decode(d, model, rules, state)
        served += rank.served
    return served


@bare_njit()
def _leave(request, rank, totals):  # type: ignore[no-untyped-def]
    request.finish = totals.now
    request.stage = GONE
    rank.free += request.blocks
    rank.load -= _known(request)
    totals.finished += 1
    totals.present -= 1


@bare_njit()
def _advance(d, model, rules, state):  # type: ignore[no-untyped-def]
    """What the step that just ended did to the requests of rank d."""
    rank, totals, kept = state.ranks[d], state.totals[0], 0
    for k in range(rank.running):
        i = state.slots[d, k]
        request = state.requests[i]
        stays = True
        if request.stage == DECODING:
            if rank.decodes == 1:
                totals.decode_tokens += 1
                rank.load += 1
                stays = request.left > 1
                if stays:
                    rank.context += 1
                else:
                    _stop_decoding(request, rank, model, state)
                request.left -= 1
        elif request.held == _known(request):
            rank.load += 1
            request.left -= 1
            if np.isnan(request.first):
                request.first = totals.now
            stays = request.left > 0 and rules.role != PREFILL_ONLY
            if stays:
                _start_decoding(request, rank, model, state)
        if stays:
            state.slots[d, kept] = i
            kept += 1
        else:
            _leave(request, rank, totals)
    rank.running = kept


@bare_njit()
def _account(b, step, rules, state):  # type: ignore[no-untyped-def]
    """The step into bucket b of the timeline and into the sums over the run."""
    bucket, totals = state.buckets[b], state.totals[0]
    running, waiting, free = np.int64(0), np.int64(0), np.int64(0)
    for d in range(len(state.ranks)):
        rank = state.ranks[d]
        bucket.tokens += rank.tokens
        running += rank.running
        waiting += rank.queued
        free += rank.free
        totals.waited += rank.queued > 0 or rank.served < rank.running
    for c in range(totals.chunks):
        totals.prompt_tokens += state.chunks[c].tokens
    bucket.steps += 1
    bucket.step_s += step
    bucket.running += running * step
    bucket.waiting += waiting * step
    bucket.kv += (1.0 - free / (np.float64(rules.kv_blocks) * len(state.ranks))) * step
    totals.present_s += totals.present * step
    totals.now += step


@bare_njit()
def _note(state):  # type: ignore[no-untyped-def]
    """Writes down which decoding requests are in the step."""
    for d in range(len(state.ranks)):
        for k in range(state.ranks[d].running):
            i = state.slots[d, k]
            if state.ranks[d].decodes == 1 and state.requests[i].stage == DECODING:
                state.noted[state.totals[0].noted] = i
                state.totals[0].noted += 1


@bare_njit()
def _step(b, note, model, rules, state):  # type: ignore[no-untyped-def]
    """One step; False where it has no tokens."""
    totals = state.totals[0]
    if _put_together(model, rules, state) == 0:
        return False
    totals.noted = 0
    if note:
        _note(state)
    step = step_seconds(model, state, state.busy[b])
    _account(b, step, rules, state)
    for d in range(len(state.ranks)):
        _advance(d, model, rules, state)
    totals.step += 1
    if totals.step % REBUILD_STEPS == 0:
        rebuild(model, state)
    return True


@bare_njit()
def serve_steps(model, rules, state, steps, recorded):  # type: ignore[no-untyped-def]
    requests, totals = state.requests, state.totals[0]
    last = totals.step + steps
    while totals.step < last:
        while totals.arrived < len(requests) and requests[totals.arrived].arrival <= totals.now:
            _arrive(totals.arrived, rules, state)
        over = totals.present == 0 and totals.arrived == len(requests)
        if over or totals.now >= rules.end_s:
            return DONE
        if totals.present == 0:
            upto = min(requests[totals.arrived].arrival, rules.end_s)
            state.seconds[0].idle += upto - totals.now
            totals.now = upto
            continue
        b = np.int64(totals.now / rules.bucket_s)
        if b >= len(state.buckets):
            return FULL
        if not _step(b, totals.step == recorded, model, rules, state):
            return STUCK
        if totals.step == recorded + 1:
            return RECORDED
    return RUNNING
