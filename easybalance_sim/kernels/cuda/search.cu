// Annealing of placements on sample windows; specification: reference_search.search.
//
// A block walks one chain of one layer. A proposal, and the draw that may refuse it, follow from its number alone, so 32
// are looked at together: the lanes of every warp take one each and drop it where the placement forbids it or the
// estimate calls it hopeless. Those left are weighed side by side, eight lanes over the windows of each. The first that
// is accepted is done, and the ones after it are looked at again: the walk is that of one proposal after the other.

typedef unsigned long long Word;

constexpr unsigned kAll = 0xffffffffu;
constexpr int kSwapsOfTen = 7, kCertainSlots = 36, kProposalsPerCooling = 64, kAcceptedPerRebuild = 4096, kGroup = 8;
constexpr double kHope = 8.0, kSwapLuck = 90.0, kHandOverLuck = 150.0, kHeatOfMany = 1.5;
constexpr int kManyExperts = 64;

// Given: rank_of_slot: [P] · tokens: [E, T] · pace: [R] · per_step: [T] · held: [R, E]
// State: slot: [P] expert · count: [E] replicas · holders: [E, words] a bit per rank · load: [R, T] · cost: [E, T] of a
// slot · phi: [R] sum of load^8 · lean: [R] see Walk.hopeless · apart: [E, E] squared distances of costs, on the
// diagonal squares · unit: a mean load^6 · verdict: [warps] lane of a proposal · leaps: [16, 16] see `leap`
struct Walk {
  const int* rank_of_slot;
  const float *tokens, *pace, *per_step;
  const unsigned char* held;
  float slope, active;
  double price;
  int most_moves, slots, ranks, experts, windows, words;
  int *slot, *count, *verdict;
  unsigned* holders;
  float *load, *cost, *apart;
  double *phi, *lean;
  const Word* leaps;
  float unit;
  int moved;
};

// Rank a's slot p goes from expert e to f; in a swap, rank b's slot q goes from f to e. share: of an expert's tokens
// that one of its slots gets afterwards
struct Change {
  bool swap;
  int p, q, a, b, e, f;
  float share_e, share_f;
};

// Of a slot of either expert at a window, before and after.
struct Costs {
  float e, f, new_e, new_f;
};

__device__ int lane() { return threadIdx.x % 32; }
__device__ int warp() { return threadIdx.x / 32; }
__device__ int warps() { return blockDim.x / 32; }

__device__ Word next(Word x) {
  x ^= x >> 12;
  x ^= x << 25;
  return x ^ (x >> 27);
}

// 32 times next: the generator is linear, so that is the sum over the parts of x, four bits each.
__device__ Word leap(const Word* leaps, Word x) {
  Word y = 0;
  for (int part = 0; part < 16; ++part) y ^= leaps[16 * part + static_cast<int>(x >> (4 * part) & 15)];
  return y;
}

__device__ int below(Word bits, int bound) { return static_cast<int>((bits * static_cast<Word>(bound)) >> 32); }

// By other bits of x than those that made the proposal.
__device__ double chance(Word x) { return static_cast<double>((x * 11400714819323198485ull) >> 32) / 4294967296.0; }

// Over runs of so many lanes, the same in each of a run.
__device__ double summed(double value, int lanes = 32) {
  for (int far = lanes / 2; far > 0; far /= 2) value += __shfl_xor_sync(kAll, value, far);
  return value;
}

__device__ double total(const double* values, int length) {
  double part = 0;
  for (int i = lane(); i < length; i += 32) part += values[i];
  return summed(part);
}

__device__ float eighth_power(float v) {
  v *= v;
  v *= v;
  return v * v;
}

__device__ bool holds(const Walk& w, int rank, int expert) {
  return w.holders[expert * w.words + rank / 32] >> (rank % 32) & 1u;
}

// share: of the expert's tokens that one of its slots gets
__device__ float slot_cost(const Walk& w, int expert, float share, int t) {
  const float x = w.tokens[expert * w.windows + t] * share;
  return w.active == 0 ? w.slope * x : w.slope * x + w.active * (1.0f - expf(-x * w.per_step[t]));
}

__device__ void measure(const Walk& w, int rank) {
  float power = 0;
  double slope = 0;
  for (int t = lane(); t < w.windows; t += 32) {
    const float v = w.load[rank * w.windows + t], v2 = v * v, v6 = v2 * v2 * v2;
    const double lean = v * (v6 - w.unit);
    power += v6 * v2;
    slope += lean * lean;
  }
  const double phi = summed(power), lean = summed(slope);
  if (lane() == 0) {
    w.phi[rank] = phi;
    w.lean[rank] = lean;
  }
}

// Distances of an expert's cost to those of experts below `last`, an expert a thread.
__device__ void tell_apart(const Walk& w, int expert, int last) {
  const float* one = w.cost + expert * w.windows;
  for (int f = threadIdx.x; f < last; f += blockDim.x) {
    const float *other = w.cost + f * w.windows, k = f != expert;
    float sum = 0;
    for (int t = 0; t < w.windows; ++t) {
      const float d = one[t] - k * other[t];
      sum += d * d;
    }
    w.apart[expert * w.experts + f] = sum;
    w.apart[f * w.experts + expert] = sum;
  }
}

__device__ void count_replicas(const Walk& w) {
  for (int e = threadIdx.x; e < w.experts; e += blockDim.x) {
    w.count[e] = 0;
    for (int i = 0; i < w.words; ++i) w.holders[e * w.words + i] = 0;
  }
  for (int p = 0; p < w.slots; ++p) {
    const int e = w.slot[p], r = w.rank_of_slot[p];
    if (e % blockDim.x != threadIdx.x) continue;
    ++w.count[e];
    w.holders[e * w.words + r / 32] |= 1u << (r % 32);
  }
}

// Everything that follows from the slots, free of float32 drift.
__device__ void rebuild(Walk& w) {
  count_replicas(w);
  __syncthreads();
  for (int i = threadIdx.x; i < w.experts * w.windows; i += blockDim.x)
    w.cost[i] = slot_cost(w, i / w.windows, 1.0f / w.count[i / w.windows], i % w.windows);
  __syncthreads();
  for (int t = threadIdx.x; t < w.windows; t += blockDim.x) {
    for (int r = 0; r < w.ranks; ++r) w.load[r * w.windows + t] = 0;
    for (int p = 0; p < w.slots; ++p) {
      const int r = w.rank_of_slot[p];
      w.load[r * w.windows + t] += w.cost[w.slot[p] * w.windows + t] * w.pace[r];
    }
  }
  __syncthreads();
  // Every warp for itself: what is summed over lanes is known to a warp alone.
  double busy = 0, sum = 0;
  for (int t = lane(); t < w.windows; t += 32) {
    double here = 0;
    for (int r = 0; r < w.ranks; ++r) here += w.load[r * w.windows + t];
    busy += here > 0;
    sum += here;
  }
  const double mean = summed(sum) / w.ranks / max(summed(busy), 1.0), cube = mean * mean * mean;
  w.unit = cube * cube;
  for (int r = warp(); r < w.ranks; r += warps()) measure(w, r);
  int moved = 0;
  for (int p = lane(); p < w.slots; p += 32) moved += !w.held[w.rank_of_slot[p] * w.experts + w.slot[p]];
  w.moved = summed(moved);
  __syncthreads();
}

__device__ Change drawn(const Walk& w, Word x, bool swap) {
  const Word bits = x * 2685821657736338717ull, rest = bits & 0xffffffffull;
  const int p = below(bits >> 32, w.slots), q = swap ? below(rest, w.slots) : p;
  const int f = swap ? w.slot[q] : below(rest, w.experts);
  const int e = w.slot[p];
  return {swap, p, q, w.rank_of_slot[p], w.rank_of_slot[q], e, f, 1.0f / (w.count[e] - 1), 1.0f / (w.count[f] + 1)};
}

__device__ bool legal(const Walk& w, const Change& c) {
  if (c.e == c.f || holds(w, c.a, c.f)) return false;
  return c.swap ? c.a != c.b && !holds(w, c.b, c.e) : w.count[c.e] > 1;
}

// Slots that must be fetched after the change and not before, less those the other way round.
__device__ int moves_more(const Walk& w, const Change& c) {
  const unsigned char *of_a = w.held + c.a * w.experts, *of_b = w.held + c.b * w.experts;
  return of_a[c.e] - of_a[c.f] + (c.swap ? of_b[c.f] - of_b[c.e] : 0);
}

// See Walk.hopeless. above: what is to be outweighed · most: the largest lean, which stands for those of other ranks
__device__ bool hopeless(const Walk& w, const Change& c, double above, double most) {
  if (w.slots <= kCertainSlots) return false;
  const double between = w.apart[c.e * w.experts + c.f];
  if (c.swap) {
    const double least = 56.0 * w.unit * between + above;
    return least > 0 && least * least > kSwapLuck * (w.lean[c.a] + w.lean[c.b]) * between;
  }
  const double of_e = w.apart[c.e * w.experts + c.e], of_f = w.apart[c.f * w.experts + c.f];
  const double replicas = w.count[c.f], share = replicas / (replicas + 1);
  const double gap = max((1 - share) * (of_e - share * of_f) + share * between, 0.0);
  const double rest = of_e / (w.count[c.e] - 1) + of_f * share * share / replicas;
  const double least = 28.0 * w.unit * (gap + rest) + above;
  return least > 0 && least * least > kHandOverLuck * (w.lean[c.a] * gap + most * rest);
}

template <class Visit>
__device__ void for_each_touched(const Walk& w, const Change& c, Visit visit) {
  if (c.swap) {
    visit(c.a);
    visit(c.b);
    return;
  }
  for (int i = 0; i < w.words; ++i)
    for (unsigned ranks = w.holders[c.e * w.words + i] | w.holders[c.f * w.words + i]; ranks; ranks &= ranks - 1)
      visit(32 * i + __ffs(ranks) - 1);
}

__device__ Costs costs(const Walk& w, const Change& c, int t) {
  const float of_e = w.cost[c.e * w.windows + t], of_f = w.cost[c.f * w.windows + t];
  if (c.swap) return {of_e, of_f, of_e, of_f};
  return {of_e, of_f, slot_cost(w, c.e, c.share_e, t), slot_cost(w, c.f, c.share_f, t)};
}

// What a touched rank's load gains.
__device__ float gain(const Walk& w, const Change& c, const Costs& k, int rank) {
  if (rank == c.a) return w.pace[rank] * (k.new_f - k.e);
  if (c.swap) return w.pace[rank] * (k.e - k.f);
  return w.pace[rank] * (holds(w, rank, c.e) * (k.new_e - k.e) + holds(w, rank, c.f) * (k.new_f - k.f));
}

// A lane's part of the change of the sum of load^8.
__device__ double power_change(const Walk& w, const Change& c) {
  const int first = threadIdx.x % kGroup;
  float after = 0;
  for (int t = first; t < w.windows; t += kGroup) {
    const Costs k = costs(w, c, t);
    for_each_touched(w, c, [&](int rank) {
      after += eighth_power(w.load[rank * w.windows + t] + gain(w, c, k, rank));
    });
  }
  double before = 0;
  for_each_touched(w, c, [&](int rank) { before += w.phi[rank]; });
  return first == 0 ? after - before : after;
}

__device__ void put(const Walk& w, int slot, int rank, int from, int to) {
  w.slot[slot] = to;
  w.holders[from * w.words + rank / 32] &= ~(1u << (rank % 32));
  w.holders[to * w.words + rank / 32] |= 1u << (rank % 32);
}

__device__ void apply(const Walk& w, const Change& c) {
  int touched = 0;
  for_each_touched(w, c, [&](int rank) {
    if (touched++ % warps() != warp()) return;
    for (int t = lane(); t < w.windows; t += 32) w.load[rank * w.windows + t] += gain(w, c, costs(w, c, t), rank);
    measure(w, rank);
  });
  __syncthreads();
  for (int t = threadIdx.x; !c.swap && t < w.windows; t += blockDim.x) {
    w.cost[c.e * w.windows + t] = slot_cost(w, c.e, c.share_e, t);
    w.cost[c.f * w.windows + t] = slot_cost(w, c.f, c.share_f, t);
  }
  if (threadIdx.x == 0) {
    put(w, c.p, c.a, c.e, c.f);
    if (c.swap) put(w, c.q, c.b, c.f, c.e);
    w.count[c.e] -= !c.swap;
    w.count[c.f] += !c.swap;
  }
  __syncthreads();
  if (c.swap) return;
  tell_apart(w, c.e, w.experts);
  __syncthreads();
  tell_apart(w, c.f, w.experts);
  __syncthreads();
}

// The least of all warps' values.
__device__ int least(const Walk& w, int value) {
  if (lane() == 0) w.verdict[warp()] = value;
  __syncthreads();
  for (int i = 0; i < warps(); ++i) value = min(value, w.verdict[i]);
  __syncthreads();
  return value;
}

// The first of the marked proposals that is accepted: its lane, 32 when none is. ones: the last digit of lane 0's number
__device__ int first_accepted(const Walk& w, Word x, unsigned marked, int ones, double temperature) {
  const int groups = blockDim.x / kGroup, group = threadIdx.x / kGroup;
  while (marked) {
    int from = 32;
    for (int g = 0; g < groups; ++g, marked &= marked - 1)
      if (marked && g == group) from = __ffs(marked) - 1;
    const Word one = __shfl_sync(kAll, x, from % 32);
    const Change c = drawn(w, one, (ones + from % 32) % 10 < kSwapsOfTen);
    const double delta = summed(from < 32 ? power_change(w, c) : 0, kGroup) + w.price * moves_more(w, c);
    if (delta > 0 && chance(one) >= exp(-delta / temperature)) from = 32;
    for (int far = 16; far >= kGroup; far /= 2) from = min(from, __shfl_xor_sync(kAll, from, far));
    const int first = least(w, from);
    if (first < 32) return first;
  }
  return 32;
}

// Does the first of the lanes' open proposals that is accepted: its lane, 32 when none is. number: of lane 0's
__device__ int take_first(Walk& w, Word x, bool open, long long number, double temperature, double most) {
  const int ones = number % 10;
  const Change mine = drawn(w, x, (ones + lane()) % 10 < kSwapsOfTen);
  if (open && legal(w, mine)) {
    const int shift = moves_more(w, mine);
    open = (shift <= 0 || w.moved + shift <= w.most_moves) &&
           !hopeless(w, mine, w.price * shift - kHope * temperature, most);
  } else {
    open = false;
  }
  const int first = first_accepted(w, x, __ballot_sync(kAll, open), ones, temperature);
  if (first == 32) return 32;
  const Change change = drawn(w, __shfl_sync(kAll, x, first), (ones + first) % 10 < kSwapsOfTen);
  w.moved += moves_more(w, change);
  apply(w, change);
  return first;
}

// Anneals from `best`, leaves there the best placement seen and returns its value. x: the random state, moved on
__device__ double anneal(Walk& w, int* best, double hot, double cold, long long proposals, Word& x) {
  __syncthreads();
  for (int p = threadIdx.x; p < w.slots; p += blockDim.x) w.slot[p] = best[p];
  __syncthreads();
  rebuild(w);
  for (int e = 0; e < w.experts; ++e) tell_apart(w, e, e + 1);
  __syncthreads();
  double lowest = total(w.phi, w.ranks) + w.price * w.moved, most = 0;
  double temperature = hot * total(w.phi, w.ranks) / w.ranks;
  const double cooling = pow(cold / hot, 1.0 / max(1ll, proposals / kProposalsPerCooling));
  int accepted = 0;
  for (int i = 0; i <= lane(); ++i) x = next(x);
  for (long long first = 0; first < proposals; first += 32) {
    if (first % kProposalsPerCooling == 0) {
      temperature *= cooling;
      most = 0;
      for (int r = 0; r < w.ranks; ++r) most = max(most, w.lean[r]);
    }
    bool open = first + lane() < proposals;
    for (int taken; (taken = take_first(w, x, open, first, temperature, most)) < 32;) {
      open = open && lane() > taken;
      if (++accepted % kAcceptedPerRebuild == 0) rebuild(w);
      const double value = total(w.phi, w.ranks) + w.price * w.moved;
      if (!(value < lowest * 0.9999995)) continue;
      lowest = value;
      for (int p = threadIdx.x; p < w.slots; p += blockDim.x) best[p] = w.slot[p];
    }
    if (first + 32 < proposals) x = leap(w.leaps, x);
  }
  x = __shfl_sync(kAll, x, static_cast<int>((proposals + 31) % 32));
  return lowest;
}

// start: [layers, P] · tokens: [layers, E, T] · held: [layers, R, E] · seeds: [blocks] states of the random numbers ·
// first: number of block 0, chains of a layer follow each other · near: whether load is in shared memory ·
// scratch: [blocks, E T + E E, + R T unless near] · best: out [blocks, P] · lowest: out [blocks]
// shared memory: Word[256], double[2 R], float[R T] if near, int[P + E + E words + warps]
extern "C" __global__ void search(const int* start, const int* rank_of_slot, const float* tokens, const float* pace,
                                  const float* per_step, const unsigned char* held, const Word* seeds, float slope,
                                  float active, double price, int most_moves, long long cold_proposals,
                                  long long proposals, int chains, int first, int slots, int ranks, int n_experts,
                                  int windows, int near, float* scratch, int* best, double* lowest) {
  extern __shared__ unsigned long long shared_memory[];
  const long long layer = (first + static_cast<int>(blockIdx.x)) / chains, by_window = ranks * windows;
  const long long far = static_cast<long long>(n_experts) * (windows + n_experts);
  double* doubles = reinterpret_cast<double*>(shared_memory + 256);
  float* floats = reinterpret_cast<float*>(doubles + 2 * ranks);
  int* integers = reinterpret_cast<int*>(floats + near * by_window);
  float* own = scratch + blockIdx.x * (far + (1 - near) * by_window);

  const int words = (ranks + 31) / 32;
  Walk w = {
      rank_of_slot, tokens + layer * n_experts * windows, pace, per_step, held + layer * ranks * n_experts,
      slope, active, price, most_moves, slots, ranks, n_experts, windows, words,
      integers, integers + slots, integers + slots + n_experts * (1 + words),
      reinterpret_cast<unsigned*>(integers + slots + n_experts),
      near ? floats : own + far, own, own + n_experts * windows, doubles, doubles + ranks, shared_memory, 0, 0};
  for (int i = threadIdx.x; i < 256; i += blockDim.x) {
    Word part = static_cast<Word>(i % 16) << (i / 16 * 4);
    for (int step = 0; step < 32; ++step) part = next(part);
    shared_memory[i] = part;
  }

  int* kept = best + static_cast<long long>(blockIdx.x) * slots;
  for (int p = threadIdx.x; p < slots; p += blockDim.x) kept[p] = start[layer * slots + p];
  Word x = seeds[blockIdx.x];
  double hot = 1e-4, value = 0;
  // A loop rather than two calls, which would be compiled twice.
  for (int stage = 0; stage < 2; ++stage) {
    value = anneal(w, kept, hot, hot / 100, stage == 0 ? cold_proposals : proposals, x);
    const double excess = value / (static_cast<double>(windows) * ranks) - 1.0;
    hot = min(max((n_experts > kManyExperts ? kHeatOfMany : 1.0) * excess, 1e-3), 0.1);
  }
  if (threadIdx.x == 0) lowest[blockIdx.x] = value;
}
