// Sends every assignment to a slot and counts what arrives where; specification: reference_dispatch.dispatch.
//
// A block takes one (step, layer), a thread one token at a time. Which turn an assignment has comes from turns.cu, so
// the order in which threads run changes nothing: all counts are integer sums. Pairs of ranks and nodes are counted in
// shared memory where a step has assignments enough to pay for adding them up, else in the result itself.

enum Rule { EVEN, TABLE, HASH, FLAT, BLOCKS, RANDOM, SHIFT };

typedef unsigned long long Word;

constexpr int kMostChoices = 64;

__device__ Word mixed(Word x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

__device__ long long draw(Word seed, long long step, int layer, int source, long long row, int k) {
  Word x = mixed(seed + 0x9E3779B97F4A7C15ull * static_cast<Word>(step + 1));
  x = mixed(x + (static_cast<Word>(layer) << 48) + (static_cast<Word>(source) << 32) + static_cast<Word>(row));
  return static_cast<long long>(mixed(x + static_cast<Word>(k)) >> 48);
}

// What a rule takes modulo the number of replicas.
__device__ long long number(int rule, int expert, int k, int layer, long long step, int source, long long row,
                            int top_k, Word seed, int earlier) {
  switch (rule) {
    case EVEN: return earlier + step;
    case HASH: return static_cast<long long>(static_cast<Word>(row) * 2654435769ull & 0xFFFFFFFFull);
    case FLAT: return row * top_k + k;
    case BLOCKS: return (row * top_k + k) / 1024 + source + earlier;
    case RANDOM: return draw(seed, step, layer, source, row, k);
    default: return row % 1024 + source + expert;
  }
}

// The replica, in slot order, that an assignment goes to: 0..replicas-1.
__device__ int pick(long long number, int replicas) {
  // Nearly always small, and 64-bit division is slow.
  if (number >> 32 == 0) return static_cast<unsigned>(number) % static_cast<unsigned>(replicas);
  const int rest = number % replicas;
  return rest < 0 ? rest + replicas : rest;
}

// What one block counts. tokens: [P] · arrived: [R] · flow: [4, R] sent and received over RDMA, then over NVLink ·
// pairs: [R, R] · across: [N, N]
struct Counts {
  int *tokens, *arrived, *flow;
  Word *pairs, *across;
};

// One message per assignment; `across` follows from `pairs`.
__device__ void count_message(const Counts& out, int source, int rank, const int* node, int ranks) {
  atomicAdd(&out.pairs[source * ranks + rank], 1ull);
  if (rank == source) return;
  const int link = node[rank] == node[source] ? 2 : 0;
  atomicAdd(&out.flow[link * ranks + source], 1);
  atomicAdd(&out.flow[(link + 1) * ranks + rank], 1);
}

// One copy per distinct node, passed on to each distinct rank. fresh, reached: first of the token on this rank, node
__device__ void count_copy(const Counts& out, int source, int rank, const int* node, const int* entry, int ranks,
                           int nodes, bool fresh, bool reached) {
  const int home = node[source], there = node[rank], via = entry[source * nodes + there];
  if (reached) {
    atomicAdd(&out.across[home * nodes + there], 1ull);
    if (there != home) {
      atomicAdd(&out.flow[source], 1);
      atomicAdd(&out.flow[ranks + via], 1);
    }
  }
  if (fresh) {
    atomicAdd(&out.pairs[source * ranks + rank], 1ull);
    if (via != rank) {
      atomicAdd(&out.flow[2 * ranks + via], 1);
      atomicAdd(&out.flow[3 * ranks + rank], 1);
    }
  }
}

// Arrays and flags as in the specification; besides: earlier: [T, L, K] from turns.cu (EVEN, BLOCKS) · together:
// whether pairs and across are counted in shared memory · shared memory: Word[R R + N N] if together, int[P + 5 R]
template <class Id>
__device__ void dispatch(const Id* experts, const long long* step_start, const long long* step, const short* source,
                         const int* row, const int* replica_start, const int* replica_slot, const int* table,
                         const int* rank_of_slot, const int* node, const int* entry, const int* earlier, int rule,
                         Word seed, int per_node, int together, int layers, int top_k, int n_experts, int slots,
                         int ranks, int nodes, int* slot_tokens, int* distinct, int* rdma, int* nvlink,
                         Word* rank_pairs, Word* node_pairs) {
  extern __shared__ Word shared_memory[];
  const int words = together ? ranks * ranks + nodes * nodes : 0, cells = slots + 5 * ranks;
  int* small = reinterpret_cast<int*>(shared_memory + words);
  const Counts out = {small, small + slots, small + slots + ranks, together ? shared_memory : rank_pairs,
                      together ? shared_memory + ranks * ranks : node_pairs};
  for (int i = threadIdx.x; i < words; i += blockDim.x) shared_memory[i] = 0;
  for (int i = threadIdx.x; i < cells; i += blockDim.x) small[i] = 0;
  __syncthreads();

  const int task = blockIdx.x, layer = task % layers, w = task / layers;
  const int* starts = replica_start + static_cast<long long>(layer) * (n_experts + 1);
  const int* of_expert = replica_slot + static_cast<long long>(layer) * slots;
  for (long long t = step_start[w] + threadIdx.x; t < step_start[w + 1]; t += blockDim.x) {
    const int src = source[t];
    const long long ids = (t * layers + layer) * top_k;
    const int* fixed = table + (static_cast<long long>(src) * layers + layer) * n_experts;
    int arrivals[kMostChoices];
    for (int k = 0; k < top_k; ++k) {
      const int expert = experts[ids + k], replicas = starts[expert + 1] - starts[expert];
      int slot = rule == TABLE || rule == RANDOM ? fixed[expert] : -1;
      if (slot < 0) {
        const int turn = rule == EVEN || rule == BLOCKS ? earlier[ids + k] : 0;
        const int which =
            replicas == 1 ? 0 : pick(number(rule, expert, k, layer, step[w], src, row[t], top_k, seed, turn), replicas);
        slot = of_expert[starts[expert] + which];
      }
      const int rank = rank_of_slot[slot];
      bool fresh = true, reached = true;
      for (int j = 0; j < k; ++j) {
        fresh &= arrivals[j] != rank;
        reached &= node[arrivals[j]] != node[rank];
      }
      arrivals[k] = rank;
      atomicAdd(&out.tokens[slot], 1);
      if (fresh) atomicAdd(&out.arrived[rank], 1);
      if (per_node) {
        count_copy(out, src, rank, node, entry, ranks, nodes, fresh, reached);
      } else {
        count_message(out, src, rank, node, ranks);
      }
    }
  }
  __syncthreads();

  for (int i = threadIdx.x; i < slots; i += blockDim.x)
    slot_tokens[static_cast<long long>(task) * slots + i] = out.tokens[i];
  for (int i = threadIdx.x; i < ranks; i += blockDim.x) {
    const long long cell = static_cast<long long>(task) * ranks + i;
    distinct[cell] = out.arrived[i];
    rdma[cell] = max(out.flow[i], out.flow[ranks + i]);
    nvlink[cell] = max(out.flow[2 * ranks + i], out.flow[3 * ranks + i]);
  }
  for (int i = threadIdx.x; i < words; i += blockDim.x) {
    const Word copies = shared_memory[i];
    if (copies > 0) atomicAdd(i < ranks * ranks ? &rank_pairs[i] : &node_pairs[i - ranks * ranks], copies);
  }
}

extern "C" __global__ void dispatch_uint8(
    const unsigned char* experts, const long long* step_start, const long long* step,
    const short* source, const int* row, const int* replica_start, const int* replica_slot, const int* table,
    const int* rank_of_slot, const int* node, const int* entry, const int* earlier, int rule, Word seed, int per_node,
    int together, int layers, int top_k, int n_experts, int slots, int ranks, int nodes, int* slot_tokens,
    int* distinct, int* rdma, int* nvlink, Word* rank_pairs, Word* node_pairs) {
  dispatch(experts, step_start, step, source, row, replica_start, replica_slot, table, rank_of_slot, node, entry,
           earlier, rule, seed, per_node, together, layers, top_k, n_experts, slots, ranks, nodes, slot_tokens,
           distinct, rdma, nvlink, rank_pairs, node_pairs);
}

extern "C" __global__ void dispatch_uint16(
    const unsigned short* experts, const long long* step_start, const long long* step,
    const short* source, const int* row, const int* replica_start, const int* replica_slot, const int* table,
    const int* rank_of_slot, const int* node, const int* entry, const int* earlier, int rule, Word seed, int per_node,
    int together, int layers, int top_k, int n_experts, int slots, int ranks, int nodes, int* slot_tokens,
    int* distinct, int* rdma, int* nvlink, Word* rank_pairs, Word* node_pairs) {
  dispatch(experts, step_start, step, source, row, replica_start, replica_slot, table, rank_of_slot, node, entry,
           earlier, rule, seed, per_node, together, layers, top_k, n_experts, slots, ranks, nodes, slot_tokens,
           distinct, rdma, nvlink, rank_pairs, node_pairs);
}
