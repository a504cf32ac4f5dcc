// Rank imbalance of many plans on many windows; specification: reference_scoring.score_plans.
//
// A block takes one layer of one plan, a thread one window at a time. Plans run fastest: blocks that run together read
// the tokens of the same layer, which stay in the cache.

// expert_of_slot: [C, L, P] · slot_start: [R + 1] · tokens: [L, E, W] · total: [L, W] · pace: [R] · scores: out
// [C, L, W] · shared memory: double[P] share of its expert's tokens that a slot gets, int[E] replicas
extern "C" __global__ void score_plans(const int* expert_of_slot, const int* slot_start, const double* tokens,
                                       const double* total, const double* pace, double* scores, int plans, int layers,
                                       int slots, int ranks, int n_experts, int windows) {
  extern __shared__ unsigned long long shared_memory[];
  double* share = reinterpret_cast<double*>(shared_memory);
  int* replicas = reinterpret_cast<int*>(share + slots);
  const int plan = blockIdx.x % plans, layer = blockIdx.x / plans;
  const long long place = static_cast<long long>(plan) * layers + layer;
  const int* expert = expert_of_slot + place * slots;
  for (int i = threadIdx.x; i < n_experts; i += blockDim.x) replicas[i] = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < slots; i += blockDim.x) atomicAdd(&replicas[expert[i]], 1);
  __syncthreads();
  for (int i = threadIdx.x; i < slots; i += blockDim.x) share[i] = 1.0 / replicas[expert[i]];
  __syncthreads();

  const double* of_layer = tokens + static_cast<long long>(layer) * n_experts * windows;
  for (int w = threadIdx.x; w < windows; w += blockDim.x) {
    double worst = 0;
    for (int r = 0; r < ranks; ++r) {
      double load = 0;
      for (int p = slot_start[r]; p < slot_start[r + 1]; ++p)
        load += of_layer[static_cast<long long>(expert[p]) * windows + w] * share[p];
      worst = max(worst, load * pace[r]);
    }
    scores[place * windows + w] = worst / total[static_cast<long long>(layer) * windows + w];
  }
}
