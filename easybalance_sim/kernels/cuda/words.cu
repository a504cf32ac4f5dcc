// Memory for measurements: filled with small floats, and read once; specification: cupy_timing.

// Splitmix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014).
__device__ unsigned long long mixed(unsigned long long value) {
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ull;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBull;
  return value ^ (value >> 31);
}

// words: [count] · keep: random bits that stay · set: bits that are 1 in every word
extern "C" __global__ void fill_words(unsigned long long* words, long long count, unsigned long long seed,
                                      unsigned long long keep, unsigned long long set) {
  const long long stride = static_cast<long long>(gridDim.x) * blockDim.x;
  for (long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride)
    words[i] = (mixed(seed + (i + 1) * 0x9E3779B97F4A7C15ull) & keep) | set;
}

// words: [count] · found: [threads] exclusive or of the words of a thread, so that no read can be left out
extern "C" __global__ void read_words(const unsigned long long* words, long long count, unsigned long long* found) {
  const long long stride = static_cast<long long>(gridDim.x) * blockDim.x;
  const long long thread = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  unsigned long long all = 0;
  long long i = thread;
  // Four loads under way per thread: one does not fill the memory's pipeline.
  for (; i + 3 * stride < count; i += 4 * stride)
    all ^= words[i] ^ words[i + stride] ^ words[i + 2 * stride] ^ words[i + 3 * stride];
  for (; i < count; i += stride) all ^= words[i];
  found[thread] = all;
}
