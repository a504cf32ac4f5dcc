// Runs CUDA kernels on the CPU: a fiber per thread, blocks one after the other, both in an order shuffled by a seed.
//
// A fiber runs until it meets a barrier, or until an atomic hands over by the toss of a coin. Barriers are kept as on a
// device: __syncthreads opens when every thread that has not returned is there, a warp operation when every lane of its
// mask is there with the same mask. When nobody can go on the program says so and ends.
#pragma once
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#define __global__
#define __device__
#define __shared__
#define __restrict__

using std::max;
using std::min;

struct dim3 {
  unsigned x, y, z;
};
static dim3 threadIdx, blockIdx, blockDim, gridDim;

constexpr size_t kSharedBytes = 48 << 10;
alignas(16) static unsigned long long shared_memory[kSharedBytes / 8];

namespace on_cpu {

constexpr size_t kStack = 256 << 10;
enum State { READY, AT_BLOCK, AT_WARP, DONE };

struct Fiber {
  ucontext_t context;
  std::vector<char> stack = std::vector<char>(kStack);
  State state;
  unsigned mask;        // lanes that a warp operation waits for
  long long value;      // what this lane brings to it
  long long found[32];  // what all of them brought
};

static std::vector<Fiber> fibers;
static ucontext_t scheduler;
static unsigned current;
static std::mt19937 random_order;
static void (*body)(void*);
static void* arguments;

#if defined(__SANITIZE_ADDRESS__)
static const void* scheduler_stack;
static size_t scheduler_stack_bytes;
static void leave(void** fake, const void* stack, size_t bytes) { __sanitizer_start_switch_fiber(fake, stack, bytes); }
static void arrive(void* fake, const void** stack, size_t* bytes) {
  __sanitizer_finish_switch_fiber(fake, stack, bytes);
}
#else
static const void* scheduler_stack;
static size_t scheduler_stack_bytes;
static void leave(void**, const void*, size_t) {}
static void arrive(void*, const void**, size_t*) {}
#endif

static void pause_as(State state) {
  const unsigned me = current;
  void* fake = nullptr;
  fibers[me].state = state;
  leave(state == DONE ? nullptr : &fake, scheduler_stack, scheduler_stack_bytes);
  swapcontext(&fibers[me].context, &scheduler);
  arrive(fake, nullptr, nullptr);
}

static void entry() {
  arrive(nullptr, &scheduler_stack, &scheduler_stack_bytes);
  body(arguments);
  pause_as(DONE);
}

static void resume(unsigned thread) {
  void* fake = nullptr;
  current = thread;
  threadIdx = {thread, 0, 0};
  leave(&fake, fibers[thread].stack.data(), kStack);
  swapcontext(&scheduler, &fibers[thread].context);
  arrive(fake, nullptr, nullptr);
}

static bool warp_is_there(unsigned thread) {
  const unsigned first = thread / 32 * 32;
  for (unsigned lane = 0; lane < 32; ++lane) {
    if (!(fibers[thread].mask >> lane & 1)) continue;
    if (first + lane >= fibers.size()) return false;
    const Fiber& other = fibers[first + lane];
    if (other.state != AT_WARP || other.mask != fibers[thread].mask) return false;
  }
  return true;
}

// Opens every barrier whose threads are all there; false when none was.
static bool open_barriers() {
  std::vector<unsigned> free;
  bool all = true;
  for (unsigned t = 0; t < fibers.size(); ++t) {
    if (fibers[t].state == AT_WARP && warp_is_there(t)) free.push_back(t);
    all &= fibers[t].state == AT_BLOCK || fibers[t].state == DONE;
  }
  for (unsigned t = 0; all && t < fibers.size(); ++t)
    if (fibers[t].state == AT_BLOCK) free.push_back(t);
  for (unsigned t : free) {
    for (unsigned lane = 0; fibers[t].state == AT_WARP && lane < 32; ++lane)
      if (fibers[t].mask >> lane & 1) fibers[t].found[lane] = fibers[t / 32 * 32 + lane].value;
    fibers[t].state = READY;
  }
  return !free.empty();
}

static void run_block(unsigned shared_bytes) {
  std::memset(shared_memory, 0xCD, sizeof shared_memory);
#if defined(__SANITIZE_ADDRESS__)
  __asan_poison_memory_region(reinterpret_cast<char*>(shared_memory) + shared_bytes, kSharedBytes - shared_bytes);
#endif
  for (Fiber& fiber : fibers) {
    getcontext(&fiber.context);
    fiber.context.uc_stack = {fiber.stack.data(), 0, kStack};
    fiber.context.uc_link = nullptr;
    fiber.state = READY;
    makecontext(&fiber.context, entry, 0);
  }
  std::vector<unsigned> order(fibers.size());
  std::iota(order.begin(), order.end(), 0u);
  auto live = [](const Fiber& fiber) { return fiber.state != DONE; };
  while (std::any_of(fibers.begin(), fibers.end(), live)) {
    std::shuffle(order.begin(), order.end(), random_order);
    bool moved = false;
    for (unsigned thread : order) {
      if (fibers[thread].state != READY) continue;
      moved = true;
      resume(thread);
    }
    if (!moved && !open_barriers()) {
      std::fprintf(stderr, "cuda_on_cpu: threads wait at barriers that the others never reach\n");
      std::abort();
    }
  }
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(shared_memory, sizeof shared_memory);
#endif
}

template <class Kernel>
void launch(unsigned grid, unsigned block, unsigned shared_bytes, unsigned seed, Kernel kernel) {
  if (shared_bytes > kSharedBytes || block > 1024) {
    std::fprintf(stderr, "cuda_on_cpu: no device takes %u shared bytes and %u threads\n", shared_bytes, block);
    std::abort();
  }
  random_order.seed(seed);
  body = [](void* kernel) { (*static_cast<Kernel*>(kernel))(); };
  arguments = &kernel;
  fibers.resize(block);
  gridDim = {grid, 1, 1};
  blockDim = {block, 1, 1};
  std::vector<unsigned> blocks(grid);
  std::iota(blocks.begin(), blocks.end(), 0u);
  std::shuffle(blocks.begin(), blocks.end(), random_order);
  for (unsigned each : blocks) {
    blockIdx = {each, 0, 0};
    run_block(shared_bytes);
  }
}

// Waits for the lanes of the mask; returns what each of them brings, by lane.
inline const long long* meet_warp(unsigned mask, long long value) {
  const unsigned me = current;
  if (!(mask >> me % 32 & 1)) {
    std::fprintf(stderr, "cuda_on_cpu: a lane is not in its own mask\n");
    std::abort();
  }
  fibers[me].mask = mask;
  fibers[me].value = value;
  pause_as(AT_WARP);
  return fibers[me].found;
}

template <class T>
T from_lane(unsigned mask, T value, unsigned lane) {
  static_assert(sizeof(T) <= sizeof(long long), "a lane brings a word");
  long long word = 0;
  std::memcpy(&word, &value, sizeof value);
  const long long* found = meet_warp(mask, word);
  if (mask >> lane % 32 & 1) std::memcpy(&value, &found[lane % 32], sizeof value);
  return value;
}

}  // namespace on_cpu

inline void __syncthreads() { on_cpu::pause_as(on_cpu::AT_BLOCK); }

inline void __syncwarp(unsigned mask = 0xffffffffu) { on_cpu::meet_warp(mask, 0); }

inline unsigned __match_any_sync(unsigned mask, int value) {
  const long long* found = on_cpu::meet_warp(mask, value);
  unsigned same = 0;
  for (unsigned lane = 0; lane < 32; ++lane)
    if (mask >> lane & 1 && found[lane] == value) same |= 1u << lane;
  return same;
}

inline unsigned __ballot_sync(unsigned mask, bool value) {
  const long long* found = on_cpu::meet_warp(mask, value);
  unsigned ones = 0;
  for (unsigned lane = 0; lane < 32; ++lane)
    if (mask >> lane & 1 && found[lane]) ones |= 1u << lane;
  return ones;
}

template <class T>
T __shfl_sync(unsigned mask, T value, int lane) {
  return on_cpu::from_lane(mask, value, static_cast<unsigned>(lane));
}

template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits) {
  return on_cpu::from_lane(mask, value, on_cpu::current % 32 ^ static_cast<unsigned>(bits));
}

inline int __ffs(unsigned mask) { return __builtin_ffs(static_cast<int>(mask)); }

inline int __popc(unsigned mask) { return __builtin_popcount(mask); }

template <class T>
T atomicAdd(T* place, T value) {
  if (on_cpu::random_order() % 64 == 0) on_cpu::pause_as(on_cpu::READY);
  const T before = *place;
  *place = before + value;
  return before;
}
