// Assignments per window, layer and expert; specification: reference_counts.count_windows.
//
// A block counts a piece (tokens of one window) in a part (a few layers, a cache line of ids per token) in shared
// memory, then adds what is not zero to the result. Parts run fastest: blocks that run together read the same tokens.

// experts: ids [T, L, K] · first, last: [pieces] tokens of a piece · window: [pieces] · out: [W, L, E], added to
// shared memory: int[part, E], part = layers of a part
template <class Id>
__device__ void count_windows(const Id* experts, const long long* first, const long long* last, const int* window,
                              unsigned long long* out, int layers, int top_k, int n_experts, int part) {
  extern __shared__ unsigned long long shared_memory[];
  int* counts = reinterpret_cast<int*>(shared_memory);
  const int parts = (layers + part - 1) / part;
  const int piece = blockIdx.x / parts, from = blockIdx.x % parts * part;
  const int here = min(part, layers - from), cells = here * n_experts;
  for (int i = threadIdx.x; i < cells; i += blockDim.x) counts[i] = 0;
  __syncthreads();

  // A thread keeps its column, so that neighbours read neighbouring bytes and the loop divides nothing.
  const int columns = here * top_k, width = min(columns, static_cast<int>(blockDim.x)), rows = blockDim.x / width;
  const int row = threadIdx.x / width;
  for (int column = threadIdx.x % width; row < rows && column < columns; column += width) {
    int* of_layer = counts + column / top_k * n_experts;
    for (long long t = first[piece] + row; t < last[piece]; t += rows)
      atomicAdd(&of_layer[experts[(t * layers + from) * top_k + column]], 1);
  }
  __syncthreads();

  unsigned long long* result = out + (static_cast<long long>(window[piece]) * layers + from) * n_experts;
  for (int i = threadIdx.x; i < cells; i += blockDim.x)
    if (counts[i] > 0) atomicAdd(&result[i], static_cast<unsigned long long>(counts[i]));
}

extern "C" __global__ void count_windows_uint8(const unsigned char* experts, const long long* first,
                                               const long long* last, const int* window, unsigned long long* out,
                                               int layers, int top_k, int n_experts, int part) {
  count_windows(experts, first, last, window, out, layers, top_k, n_experts, part);
}

extern "C" __global__ void count_windows_uint16(const unsigned short* experts, const long long* first,
                                                const long long* last, const int* window, unsigned long long* out,
                                                int layers, int top_k, int n_experts, int part) {
  count_windows(experts, first, last, window, out, layers, top_k, n_experts, part);
}
