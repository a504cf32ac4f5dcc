"""Requests through an engine step by step, compiled; specification in `reference_serving`."""

from __future__ import annotations

import numpy as np

from easybalance_sim.kernels.bare import bare_njit
from easybalance_sim.kernels.numba_serving_seconds import add_rows, rebuild, step_seconds
from easybalance_sim.kernels.serving_state import (
    AFFINITY,
    AREA,
    ARRIVED,
    CHUNKS,
    DECODE_ONLY,
    DECODE_TOKENS,
    DECODERS,
    DECODING,
    DONE,
    DROPPED,
    FINISHED,
    FULL,
    GONE,
    IDLE,
    NOTED,
    NOW,
    PREFILL_FIRST,
    PREFILL_ONLY,
    PRESENT,
    PROMPT,
    PROMPT_TOKENS,
    REBUILD_STEPS,
    RECORDED,
    REFUSED,
    ROUND_ROBIN,
    RUNNING,
    STEP,
    STUCK,
    TOO_LONG,
    TURN,
    WAITED,
    WAITING,
)

NOBODY = -1


@bare_njit()
def _known(i, requests, state):  # type: ignore[no-untyped-def]
    """Tokens of a request so far: its prompt and what it was answered."""
    return np.int64(requests.prompt[i]) + requests.output[i] - state.left[i]


@bare_njit()
def _blocks(tokens, rules):  # type: ignore[no-untyped-def]
    return (tokens + rules.block_tokens - 1) // rules.block_tokens


@bare_njit()
def _routed(i, requests, rules, state):  # type: ignore[no-untyped-def]
    """The rank that a request goes to."""
    if rules.router == ROUND_ROBIN:
        return state.counts[TURN] % len(state.load)
    if rules.router == AFFINITY:
        home = requests.home[i]
        if rules.waiting == 0 or state.queued[home] < rules.waiting:
            return np.int64(home)
    least = 0
    for d in range(1, len(state.load)):
        if state.load[d] < state.load[least]:
            least = d
    return least


@bare_njit()
def _arrive(i, requests, rules, state):  # type: ignore[no-untyped-def]
    counts, now = state.counts, state.clock[NOW]
    most = requests.prompt[i] + (0 if rules.role == PREFILL_ONLY else requests.output[i] - 1)
    too_long = _blocks(most, rules) > rules.kv_blocks
    d = _routed(i, requests, rules, state)
    counts[TURN] += 1
    if too_long or (rules.waiting > 0 and state.queued[d] >= rules.waiting):
        state.refused[i] = True
        counts[REFUSED] += 1
        counts[TOO_LONG] += too_long
        return
    state.rank[i] = d
    state.left[i] = requests.output[i] - (rules.role == DECODE_ONLY)
    if state.left[i] == 0:
        state.start[i] = state.first[i] = state.finish[i] = requests.arrival[i]
        counts[FINISHED] += 1
        return
    state.clock[AREA] += now - requests.arrival[i]
    counts[PRESENT] += 1
    state.load[d] += _known(i, requests, state)
    state.stage[i] = WAITING
    state.behind[i] = NOBODY
    if state.head[d] == NOBODY:
        state.head[d] = i
    else:
        state.behind[state.tail[d]] = i
    state.tail[d] = i
    state.queued[d] += 1


@bare_njit()
def _stop_decoding(i, d, requests, model, state):  # type: ignore[no-untyped-def]
    """Takes a request's share out of the sums."""
    state.context[d] -= _known(i, requests, state)
    state.counts[DECODERS] -= 1
    if state.counts[DECODERS] == 0:
        state.mean_sum[:] = 0.0
        state.spread_sum[:] = 0.0
        return
    add_rows(state.mean_sum, model.mean[requests.decode[i]], -1.0)
    add_rows(state.spread_sum, model.spread[requests.decode[i]], -1.0)


@bare_njit()
def _start_decoding(i, d, requests, model, state):  # type: ignore[no-untyped-def]
    state.stage[i] = DECODING
    state.context[d] += _known(i, requests, state)
    state.counts[DECODERS] += 1
    add_rows(state.mean_sum, model.mean[requests.decode[i]], 1.0)
    add_rows(state.spread_sum, model.spread[requests.decode[i]], 1.0)


@bare_njit()
def _cached_at_first(i, requests, rules):  # type: ignore[no-untyped-def]
    return requests.prompt[i] if rules.role == DECODE_ONLY else requests.cached[i]


@bare_njit()
def _preempt_last(d, requests, model, rules, state):  # type: ignore[no-untyped-def]
    """The request that rank d admitted last goes back to the head of the queue without its cache; returns it."""
    state.running[d] -= 1
    i = state.slots[d, state.running[d]]
    held = np.int64(state.held[i])
    if state.stage[i] == DECODING:
        held = _known(i, requests, state) - 1
        _stop_decoding(i, d, requests, model, state)
    state.counts[DROPPED] += held - (_cached_at_first(i, requests, rules) if state.preemptions[i] == 0 else 0)
    state.preemptions[i] += 1
    state.preempted[d] = True
    state.free[d] += state.blocks[i]
    state.stage[i] = WAITING
    state.behind[i] = state.head[d]
    if state.head[d] == NOBODY:
        state.tail[d] = i
    state.head[d] = i
    state.queued[d] += 1
    return i


@bare_njit()
def _decode(d, requests, model, rules, state):  # type: ignore[no-untyped-def]
    """Every decoding request of rank d takes a place in its cache; a new block where there is none, if need be from the
    request that was admitted last."""
    k = 0
    while k < state.running[d]:
        i = state.slots[d, k]
        k += 1
        if state.stage[i] != DECODING:
            continue
        if state.room[i] == 0:
            victim = NOBODY
            while state.free[d] == 0 and victim != i:
                victim = _preempt_last(d, requests, model, rules, state)
            if victim == i:
                break
            state.free[d] -= 1
            state.blocks[i] += 1
            state.room[i] = rules.block_tokens
        state.room[i] -= 1
        state.tokens[d] += 1
        state.served[d] += 1


@bare_njit()
def _take_chunk(i, d, budget, requests, rules, state):  # type: ignore[no-untyped-def]
    """Takes prompt tokens of a request into the step; returns how many."""
    take = min(budget, rules.chunk_tokens, _known(i, requests, state) - state.held[i])
    if take == 0:
        return take
    handed_over = rules.role == DECODE_ONLY and state.preemptions[i] == 0
    c = state.counts[CHUNKS]
    state.chunk_of[c], state.chunk[c] = i, take
    state.chunk_row[c] = requests.decode[i] if handed_over else requests.prefill[i]
    state.counts[CHUNKS] += 1
    if handed_over:
        state.reads[d] += state.held[i] + take
    else:
        state.pairs[d] += take * (state.held[i] + 0.5 * take)
    state.held[i] += take
    state.tokens[d] += take
    state.served[d] += 1
    return take


@bare_njit()
def _admit(d, requests, rules, state):  # type: ignore[no-untyped-def]
    """The head of rank d's queue gets cache for all its tokens; False where there is no room."""
    i = state.head[d]
    known = _known(i, requests, state)
    blocks = _blocks(known, rules)
    if blocks > state.free[d]:
        return False
    state.head[d] = state.behind[i]
    state.queued[d] -= 1
    state.free[d] -= blocks
    state.blocks[i] = blocks
    state.room[i] = blocks * rules.block_tokens - known
    state.held[i] = _cached_at_first(i, requests, rules) if state.preemptions[i] == 0 else 0
    state.stage[i] = PROMPT
    if np.isnan(state.start[i]):
        state.start[i] = state.clock[NOW]
    state.slots[d, state.running[d]] = i
    state.running[d] += 1
    return True


@bare_njit()
def _prompts(d, requests, rules, state):  # type: ignore[no-untyped-def]
    """Chunks of prompts into the step, first come first served: those begun, then new ones."""
    budget = rules.batch_tokens - state.tokens[d]
    for k in range(state.running[d]):
        i = state.slots[d, k]
        if state.stage[i] == PROMPT and budget > 0:
            budget -= _take_chunk(i, d, budget, requests, rules, state)
    while budget > 0 and state.head[d] != NOBODY and state.running[d] < rules.running and not state.preempted[d]:
        if not _admit(d, requests, rules, state):
            break
        i = state.slots[d, state.running[d] - 1]
        budget -= _take_chunk(i, d, budget, requests, rules, state)


@bare_njit()
def _put_together(requests, model, rules, state):  # type: ignore[no-untyped-def]
    """Schedules the next step; returns whether decoding requests are in it."""
    state.tokens[:] = 0
    state.pairs[:] = 0.0
    state.reads[:] = 0
    state.served[:] = 0
    state.preempted[:] = False
    state.counts[CHUNKS] = 0
    ranks = len(state.tokens)
    prompts_alone = rules.schedule == PREFILL_FIRST and rules.role != DECODE_ONLY
    if prompts_alone:
        for d in range(ranks):
            _prompts(d, requests, rules, state)
        if state.counts[CHUNKS] > 0:
            return False
    for d in range(ranks):
        _decode(d, requests, model, rules, state)
        state.reads[d] = state.context[d]
    if not prompts_alone:
        for d in range(ranks):
            _prompts(d, requests, rules, state)
    return True


@bare_njit()
def _leave(i, d, requests, state):  # type: ignore[no-untyped-def]
    """A request is done, all its tokens given out."""
    state.finish[i] = state.clock[NOW]
    state.stage[i] = GONE
    state.free[d] += state.blocks[i]
    state.counts[FINISHED] += 1
    state.counts[PRESENT] -= 1


@bare_njit()
def _advance(d, decodes, requests, model, rules, state):  # type: ignore[no-untyped-def]
    """What the step that just ended did to the requests of rank d."""
    kept = 0
    for k in range(state.running[d]):
        i = state.slots[d, k]
        stays = True
        if state.stage[i] == DECODING:
            if decodes:
                state.counts[DECODE_TOKENS] += 1
                if state.left[i] == 1:
                    _stop_decoding(i, d, requests, model, state)
                    stays = False
                else:
                    state.context[d] += 1
                state.left[i] -= 1
                state.load[d] += 1
        elif state.held[i] == _known(i, requests, state):
            state.left[i] -= 1
            state.load[d] += 1
            if np.isnan(state.first[i]):
                state.first[i] = state.clock[NOW]
            stays = state.left[i] > 0 and rules.role != PREFILL_ONLY
            if stays:
                _start_decoding(i, d, requests, model, state)
        if stays:
            state.slots[d, kept] = i
            kept += 1
        else:
            state.load[d] -= _known(i, requests, state)
            _leave(i, d, requests, state)
    state.running[d] = kept


@bare_njit()
def _account(b, step, rules, state):  # type: ignore[no-untyped-def]
    """The step into bucket b of the timeline and into the sums over the run."""
    tokens, running, waiting, free = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    for d in range(len(state.tokens)):
        tokens += state.tokens[d]
        running += state.running[d]
        waiting += state.queued[d]
        free += state.free[d]
        state.counts[WAITED] += state.queued[d] > 0 or state.served[d] < state.running[d]
    for c in range(state.counts[CHUNKS]):
        state.counts[PROMPT_TOKENS] += state.chunk[c]
    state.tokens_at[b] += tokens
    state.steps_at[b] += 1
    state.step_s_at[b] += step
    state.running_at[b] += running * step
    state.waiting_at[b] += waiting * step
    state.kv_at[b] += (1.0 - free / (np.float64(rules.kv_blocks) * len(state.free))) * step
    state.clock[AREA] += state.counts[PRESENT] * step
    state.clock[NOW] += step


@bare_njit()
def _note(state):  # type: ignore[no-untyped-def]
    """Writes down which decoding requests are in the step."""
    state.counts[NOTED] = 0
    for d in range(len(state.running)):
        for k in range(state.running[d]):
            if state.stage[state.slots[d, k]] == DECODING:
                state.noted[state.counts[NOTED]] = state.slots[d, k]
                state.counts[NOTED] += 1


@bare_njit()
def _step(b, note, requests, model, rules, state):  # type: ignore[no-untyped-def]
    """One step; False where it has no tokens."""
    decodes = _put_together(requests, model, rules, state)
    if state.counts[CHUNKS] == 0 and state.counts[DECODERS] == 0:
        return False
    state.counts[NOTED] = 0
    if note and decodes:
        _note(state)
    step = step_seconds(model, state, decodes, state.busy_at[b])
    _account(b, step, rules, state)
    for d in range(len(state.tokens)):
        _advance(d, decodes, requests, model, rules, state)
    state.counts[STEP] += 1
    if state.counts[STEP] % REBUILD_STEPS == 0:
        rebuild(requests, model, state)
    return True


@bare_njit()
def serve_steps(requests, model, rules, state, steps, recorded):  # type: ignore[no-untyped-def]
    counts, clock = state.counts, state.clock
    last = counts[STEP] + steps
    while counts[STEP] < last:
        while counts[ARRIVED] < len(requests.arrival) and requests.arrival[counts[ARRIVED]] <= clock[NOW]:
            _arrive(counts[ARRIVED], requests, rules, state)
            counts[ARRIVED] += 1
        over = counts[PRESENT] == 0 and counts[ARRIVED] == len(requests.arrival)
        if over or clock[NOW] >= rules.end_s:
            return DONE
        if counts[PRESENT] == 0:
            upto = min(requests.arrival[counts[ARRIVED]], rules.end_s)
            state.seconds[IDLE] += upto - clock[NOW]
            clock[NOW] = upto
            continue
        b = np.int64(clock[NOW] / rules.bucket_s)
        if b >= len(state.steps_at):
            return FULL
        if not _step(b, counts[STEP] == recorded, requests, model, rules, state):
            return STUCK
        if counts[STEP] == recorded + 1:
            return RECORDED
    return RUNNING
