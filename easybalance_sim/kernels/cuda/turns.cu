// How often an assignment's expert was chosen before it, in its series: what the rules EVEN and BLOCKS count.
//
// A series is a run of assignments in order: those of one step (EVEN), or 1024 of one source rank in it (BLOCKS). A
// warp takes one series in one layer, 32 assignments at a time. Of those with the same expert each lane counts the ones
// on lower lanes, which gives the exact number that going through them one by one would give.

// experts: ids [T, L, K] · order: [T] tokens in the order of the series · first, last: [series] place · K + k where a
// series begins and ends · earlier: [T, L, K] out · shared memory: int[warps, E]
template <class Id>
__device__ void turns(const Id* experts, const int* order, const long long* first, const long long* last, int* earlier,
                      int series, int layers, int top_k, int n_experts) {
  extern __shared__ unsigned long long shared_memory[];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const long long task = static_cast<long long>(blockIdx.x) * (blockDim.x / 32) + warp;
  if (task >= static_cast<long long>(series) * layers) return;
  const int layer = task % layers;
  const long long one = task / layers;
  int* seen = reinterpret_cast<int*>(shared_memory) + warp * n_experts;
  for (int i = lane; i < n_experts; i += 32) seen[i] = 0;
  __syncwarp();

  // A lane's place moves on by 32 assignments without dividing again.
  const long long begin = first[one] + lane;
  long long token = begin / top_k;
  int k = begin % top_k;
  for (long long from = first[one]; from < last[one]; from += 32) {
    const bool inside = from + lane < last[one];
    const long long id = inside ? (static_cast<long long>(order[token]) * layers + layer) * top_k + k : 0;
    const int expert = inside ? experts[id] : -1;
    const unsigned same = __match_any_sync(0xffffffffu, expert);
    const int lower = __popc(same & ((1u << lane) - 1));
    if (inside) earlier[id] = seen[expert] + lower;
    __syncwarp();
    if (inside && lower == 0) seen[expert] += __popc(same);
    __syncwarp();
    token += 32 / top_k;
    k += 32 % top_k;
    if (k >= top_k) {
      k -= top_k;
      ++token;
    }
  }
}

extern "C" __global__ void turns_uint8(const unsigned char* experts, const int* order, const long long* first,
                                       const long long* last, int* earlier, int series, int layers, int top_k,
                                       int n_experts) {
  turns(experts, order, first, last, earlier, series, layers, top_k, n_experts);
}

extern "C" __global__ void turns_uint16(const unsigned short* experts, const int* order, const long long* first,
                                        const long long* last, int* earlier, int series, int layers, int top_k,
                                        int n_experts) {
  turns(experts, order, first, last, earlier, series, layers, top_k, n_experts);
}
