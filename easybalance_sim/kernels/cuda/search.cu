// Annealing of placements on sample windows; specification: reference_search.search.
//
// A block is one warp and walks one chain of one layer. A proposal, and the draw that may refuse it, follow from its
// number alone, so 32 are looked at together: each lane takes one and drops it where the placement forbids it or the
// estimate calls it hopeless. Those left are weighed in order, all lanes over the windows; once one is accepted the
// later ones are looked at again. The walk is therefore that of one proposal after the other.
//
// A lane owns the windows lane, lane + 32, ...: only what is not by windows needs a barrier.

typedef unsigned long long Word;

constexpr unsigned kAll = 0xffffffffu;
constexpr int kSwapsOfTen = 7, kCertainSlots = 36, kProposalsPerCooling = 64, kAcceptedPerRebuild = 4096;
constexpr double kHope = 8.0, kSwapLuck = 90.0, kHandOverLuck = 150.0;

// Given: rank_of_slot: [P] · tokens: [E, T] · pace: [R] · per_step: [T] · held: [R, E]
// State: slot: [P] expert · count: [E] replicas · holders: [E, words] a bit per rank · load: [R, T] · cost: [E, T] of a
// slot · phi: [R] sum of load^8 · lean: [R] see Walk.hopeless · apart: [E, E] squared distances of costs, on the
// diagonal squares · rows: [4, T] of a hand-over: new costs of both experts, their changes · unit: a mean load^6
struct Walk {
  const int* rank_of_slot;
  const float *tokens, *pace, *per_step;
  const unsigned char* held;
  float slope, active;
  double price;
  int most_moves, slots, ranks, experts, windows, words;
  int *slot, *count;
  unsigned* holders;
  float *load, *cost, *apart, *rows;
  double *phi, *lean;
  float unit;
  int moved;
};

// Rank a's slot p goes from expert e to f; in a swap, rank b's slot q goes from f to e.
struct Change {
  bool swap;
  int p, q, a, b, e, f;
};

// What a rank's load gains: kx x[t] + ky y[t].
struct Gain {
  const float *x, *y;
  float kx, ky;
};

__device__ Word next(Word x) {
  x ^= x >> 12;
  x ^= x << 25;
  return x ^ (x >> 27);
}

__device__ int below(Word bits, int bound) { return static_cast<int>((bits * static_cast<Word>(bound)) >> 32); }

// By other bits of x than those that made the proposal.
__device__ double chance(Word x) { return static_cast<double>((x * 11400714819323198485ull) >> 32) / 4294967296.0; }

// Over all lanes, the same in each.
__device__ double summed(double value) {
  for (int far = 16; far > 0; far /= 2) value += __shfl_xor_sync(kAll, value, far);
  return value;
}

__device__ double total(const double* values, int length) {
  double part = 0;
  for (int i = threadIdx.x; i < length; i += 32) part += values[i];
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
  for (int t = threadIdx.x; t < w.windows; t += 32) {
    const float v = w.load[rank * w.windows + t], v2 = v * v, v6 = v2 * v2 * v2;
    const double lean = v * (v6 - w.unit);
    power += v6 * v2;
    slope += lean * lean;
  }
  const double phi = summed(power), lean = summed(slope);
  if (threadIdx.x == 0) {
    w.phi[rank] = phi;
    w.lean[rank] = lean;
  }
}

// Distances of an expert's cost to those of experts below `last`, an expert a lane: all lanes read all windows.
__device__ void tell_apart(const Walk& w, int expert, int last) {
  const float* one = w.cost + expert * w.windows;
  for (int f = threadIdx.x; f < last; f += 32) {
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

// Everything that follows from the slots, free of float32 drift.
__device__ void rebuild(Walk& w) {
  for (int e = threadIdx.x; e < w.experts; e += 32) {
    w.count[e] = 0;
    for (int i = 0; i < w.words; ++i) w.holders[e * w.words + i] = 0;
  }
  for (int p = 0; p < w.slots; ++p) {
    const int e = w.slot[p], r = w.rank_of_slot[p];
    if (e % 32 != static_cast<int>(threadIdx.x)) continue;
    ++w.count[e];
    w.holders[e * w.words + r / 32] |= 1u << (r % 32);
  }
  __syncwarp();
  double busy = 0, sum = 0;
  for (int t = threadIdx.x; t < w.windows; t += 32) {
    for (int e = 0; e < w.experts; ++e) w.cost[e * w.windows + t] = slot_cost(w, e, 1.0f / w.count[e], t);
    for (int r = 0; r < w.ranks; ++r) w.load[r * w.windows + t] = 0;
    double here = 0;
    for (int p = 0; p < w.slots; ++p) {
      const float cost = w.cost[w.slot[p] * w.windows + t] * w.pace[w.rank_of_slot[p]];
      w.load[w.rank_of_slot[p] * w.windows + t] += cost;
      here += cost;
    }
    busy += here > 0;
    sum += here;
  }
  const double mean = summed(sum) / w.ranks / max(summed(busy), 1.0), cube = mean * mean * mean;
  w.unit = cube * cube;
  for (int r = 0; r < w.ranks; ++r) measure(w, r);
  int moved = 0;
  for (int p = threadIdx.x; p < w.slots; p += 32) moved += !w.held[w.rank_of_slot[p] * w.experts + w.slot[p]];
  w.moved = summed(moved);
  __syncwarp();
}

__device__ Change drawn(const Walk& w, Word x, bool swap) {
  const Word bits = x * 2685821657736338717ull, rest = bits & 0xffffffffull;
  const int p = below(bits >> 32, w.slots), q = swap ? below(rest, w.slots) : p;
  const int f = swap ? w.slot[q] : below(rest, w.experts);
  return {swap, p, q, w.rank_of_slot[p], w.rank_of_slot[q], w.slot[p], f};
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

__device__ Gain gain(const Walk& w, const Change& c, int rank) {
  const float *of_e = w.cost + c.e * w.windows, *of_f = w.cost + c.f * w.windows;
  const float pace = w.pace[rank];
  if (c.swap) return {of_f, of_e, rank == c.a ? pace : -pace, rank == c.a ? -pace : pace};
  if (rank == c.a) return {w.rows + w.windows, of_e, pace, -pace};
  return {w.rows + 2 * w.windows, w.rows + 3 * w.windows, pace * holds(w, rank, c.e), pace * holds(w, rank, c.f)};
}

// Change of the sum of load^8; leaves the rows of a hand-over.
__device__ double power_change(const Walk& w, const Change& c) {
  const float share_e = 1.0f / (w.count[c.e] - 1), share_f = 1.0f / (w.count[c.f] + 1);
  for (int t = threadIdx.x; !c.swap && t < w.windows; t += 32) {
    const float of_e = slot_cost(w, c.e, share_e, t), of_f = slot_cost(w, c.f, share_f, t);
    w.rows[t] = of_e;
    w.rows[w.windows + t] = of_f;
    w.rows[2 * w.windows + t] = of_e - w.cost[c.e * w.windows + t];
    w.rows[3 * w.windows + t] = of_f - w.cost[c.f * w.windows + t];
  }
  double before = 0;
  float after = 0;
  for_each_touched(w, c, [&](int rank) {
    const Gain g = gain(w, c, rank);
    const float* load = w.load + rank * w.windows;
    for (int t = threadIdx.x; t < w.windows; t += 32) after += eighth_power(load[t] + g.kx * g.x[t] + g.ky * g.y[t]);
    before += w.phi[rank];
  });
  return summed(after) - before;
}

__device__ void put(const Walk& w, int slot, int rank, int from, int to) {
  w.slot[slot] = to;
  w.holders[from * w.words + rank / 32] &= ~(1u << (rank % 32));
  w.holders[to * w.words + rank / 32] |= 1u << (rank % 32);
}

// Does what power_change looked at.
__device__ void apply(const Walk& w, const Change& c) {
  __syncwarp();
  for_each_touched(w, c, [&](int rank) {
    const Gain g = gain(w, c, rank);
    float* load = w.load + rank * w.windows;
    for (int t = threadIdx.x; t < w.windows; t += 32) load[t] += g.kx * g.x[t] + g.ky * g.y[t];
    measure(w, rank);
  });
  for (int t = threadIdx.x; !c.swap && t < w.windows; t += 32) {
    w.cost[c.e * w.windows + t] = w.rows[t];
    w.cost[c.f * w.windows + t] = w.rows[w.windows + t];
  }
  __syncwarp();
  if (threadIdx.x == 0) {
    put(w, c.p, c.a, c.e, c.f);
    if (c.swap) put(w, c.q, c.b, c.f, c.e);
    w.count[c.e] -= !c.swap;
    w.count[c.f] += !c.swap;
  }
  __syncwarp();
  if (c.swap) return;
  tell_apart(w, c.e, w.experts);
  __syncwarp();
  tell_apart(w, c.f, w.experts);
  __syncwarp();
}

// Does the first of the lanes' open proposals that is accepted and returns its lane, -1 when none is. number: of lane 0's
__device__ int take_first(Walk& w, Word x, bool open, long long number, double temperature, double most) {
  const int ones = number % 10;
  const Change mine = drawn(w, x, (ones + threadIdx.x) % 10 < kSwapsOfTen);
  if (open && legal(w, mine)) {
    const int shift = moves_more(w, mine);
    open = (shift <= 0 || w.moved + shift <= w.most_moves) &&
           !hopeless(w, mine, w.price * shift - kHope * temperature, most);
  } else {
    open = false;
  }
  for (unsigned left = __ballot_sync(kAll, open); left; left &= left - 1) {
    const int lane = __ffs(left) - 1;
    const Word one = __shfl_sync(kAll, x, lane);
    const Change change = drawn(w, one, (ones + lane) % 10 < kSwapsOfTen);
    const int shift = moves_more(w, change);
    const double delta = power_change(w, change) + w.price * shift;
    if (delta > 0 && chance(one) >= exp(-delta / temperature)) continue;
    apply(w, change);
    w.moved += shift;
    return lane;
  }
  return -1;
}

// Anneals from `best`, leaves there the best placement seen and returns its value. x: the random state, moved on
__device__ double anneal(Walk& w, int* best, double hot, double cold, long long proposals, Word& x) {
  for (int p = threadIdx.x; p < w.slots; p += 32) w.slot[p] = best[p];
  __syncwarp();
  rebuild(w);
  for (int e = 0; e < w.experts; ++e) tell_apart(w, e, e + 1);
  __syncwarp();
  double lowest = total(w.phi, w.ranks) + w.price * w.moved, most = 0;
  double temperature = hot * total(w.phi, w.ranks) / w.ranks;
  const double cooling = pow(cold / hot, 1.0 / max(1ll, proposals / kProposalsPerCooling));
  int accepted = 0;
  for (unsigned i = 0; i <= threadIdx.x; ++i) x = next(x);
  for (long long first = 0; first < proposals; first += 32) {
    if (first % kProposalsPerCooling == 0) {
      temperature *= cooling;
      most = 0;
      for (int r = 0; r < w.ranks; ++r) most = max(most, w.lean[r]);
    }
    bool open = first + threadIdx.x < proposals;
    for (int taken; (taken = take_first(w, x, open, first, temperature, most)) >= 0;) {
      open = open && static_cast<int>(threadIdx.x) > taken;
      if (++accepted % kAcceptedPerRebuild == 0) rebuild(w);
      const double value = total(w.phi, w.ranks) + w.price * w.moved;
      if (!(value < lowest * 0.9999995)) continue;
      lowest = value;
      for (int p = threadIdx.x; p < w.slots; p += 32) best[p] = w.slot[p];
    }
    for (int i = 0; i < 32 && first + 32 < proposals; ++i) x = next(x);
  }
  x = __shfl_sync(kAll, x, static_cast<int>((proposals + 31) % 32));
  return lowest;
}

// start: [layers, P] · tokens: [layers, E, T] · held: [layers, R, E] · seeds: [blocks] states of the random numbers ·
// first: number of block 0, chains of a layer follow each other · near: whether load and rows are in shared memory ·
// scratch: [blocks, E T + E E, + (R + 4) T unless near] · best: out [blocks, P] · lowest: out [blocks]
// shared memory: double[2 R], float[(R + 4) T] if near, int[P + E + E words]
extern "C" __global__ void search(const int* start, const int* rank_of_slot, const float* tokens, const float* pace,
                                  const float* per_step, const unsigned char* held, const Word* seeds, float slope,
                                  float active, double price, int most_moves, long long cold_proposals,
                                  long long proposals, int chains, int first, int slots, int ranks, int n_experts,
                                  int windows, int near, float* scratch, int* best, double* lowest) {
  extern __shared__ unsigned long long shared_memory[];
  const long long layer = (first + static_cast<int>(blockIdx.x)) / chains, by_window = (ranks + 4) * windows;
  const long long far = static_cast<long long>(n_experts) * (windows + n_experts);
  double* doubles = reinterpret_cast<double*>(shared_memory);
  float* floats = reinterpret_cast<float*>(doubles + 2 * ranks);
  int* integers = reinterpret_cast<int*>(floats + near * by_window);
  float* own = scratch + blockIdx.x * (far + (1 - near) * by_window);

  Walk w;
  w.rank_of_slot = rank_of_slot;
  w.tokens = tokens + layer * n_experts * windows;
  w.pace = pace;
  w.per_step = per_step;
  w.held = held + layer * ranks * n_experts;
  w.slope = slope;
  w.active = active;
  w.price = price;
  w.most_moves = most_moves;
  w.slots = slots;
  w.ranks = ranks;
  w.experts = n_experts;
  w.windows = windows;
  w.words = (ranks + 31) / 32;
  w.slot = integers;
  w.count = integers + slots;
  w.holders = reinterpret_cast<unsigned*>(integers + slots + n_experts);
  w.cost = own;
  w.apart = own + n_experts * windows;
  w.load = near ? floats : own + far;
  w.rows = w.load + ranks * windows;
  w.phi = doubles;
  w.lean = doubles + ranks;

  int* kept = best + static_cast<long long>(blockIdx.x) * slots;
  for (int p = threadIdx.x; p < slots; p += 32) kept[p] = start[layer * slots + p];
  Word x = seeds[blockIdx.x];
  double hot = 1e-4, value = 0;
  // A loop rather than two calls, which would be compiled twice.
  for (int stage = 0; stage < 2; ++stage) {
    value = anneal(w, kept, hot, hot / 100, stage == 0 ? cold_proposals : proposals, x);
    hot = min(max(value / (static_cast<double>(windows) * ranks) - 1.0, 1e-3), 0.1);
  }
  if (threadIdx.x == 0) lowest[blockIdx.x] = value;
}
