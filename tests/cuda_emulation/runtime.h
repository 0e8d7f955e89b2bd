#pragma once
// What the parts of the emulated runtime share: one lock, the last error, queued work.

#include <cuda_runtime.h>

#include <functional>
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>

namespace emulation {

std::recursive_mutex& runtime_mutex();
#define LOCK const std::lock_guard lock(::emulation::runtime_mutex())
// Mutation testing: a call that the program was told to pass over.
#define SYNCHRONISES \
  if (::emulation::deleted({__func__, "", 0})) return cudaSuccess

cudaError_t failed(cudaError_t error);  // what cudaGetLastError gives next
cudaError_t alive();                    // after a fault every call gives its error
bool is_lost();
// What an illegal access is on a device: nothing works from here on. Throws.
[[noreturn]] void fault(const std::string& what);

// The device of QUIRE_EMULATION_CAPABILITY: 90 (as when it is not set), 89, 80 or 75, which no kernel
// was compiled for.
struct Limits {
  int capability = 90;
  std::size_t shared_per_block = 227 << 10, shared_per_sm = 228 << 10;  // opt-in; bytes
  int threads_per_sm = 2048, blocks_per_sm = 32, sms = 4;
};
const Limits& limits();

// What is queued. A kernel that may begin before the one in front of it has ended is begun by
// begin(), which gives what goes on with it.
struct Work {
  std::function<void()> run;
  std::function<std::function<void()>()> begin = {};
  bool is_kernel = false;  // another may begin before it has ended

  template <class F>
  requires std::is_invocable_v<F> Work(F work, bool kernel = false)
      : run(std::move(work)), is_kernel(kernel) {}
};
cudaError_t put(cudaStream_t stream, Work work);
// Called by work: what it takes of a device's time, which events measure; what says nothing takes
// none.
void spend(double microseconds);
void drain_all();
void drain(cudaStream_t stream);
bool is_capturing(cudaStream_t stream);
// From now on queued work runs when there is time, as on a device: other processes wait for it.
void run_by_itself();
// A call that a thread may not make while it captures: ends the capture, as on a device.
cudaError_t unsafe_call();

}  // namespace emulation
