#pragma once
// What a GPU can do at most, and how long things on it take: a benchmark's limits and its clock.

#include <functional>
#include <string>

#include "backend/device.h"
#include "backend/ops.h"

namespace quire::perf {

// Seconds on the device of one body(), which queues work on the stream: the median of repeats,
// after one that does not count. Buffers should be larger than the L2 cache.
double device_seconds(StreamRef stream, const std::function<void()>& body, int repeats = 9,
                      int bodies_per_repeat = 1);

// Uniform bf16 in [−1, 1) times scale: products of zeros would run at a lower power.
void fill_bf16(TensorView tensor, float scale, StreamRef stream);
// Bytes below 0x40 in magnitude, a sign in the highest bit: of fp8_e4m3 all are below 2.
void fill_codes(TensorView tensor, StreamRef stream);
// Reads all bytes once (a multiple of 16).
void read_bytes(const void* data, std::size_t bytes, StreamRef stream);
void launch_empty(StreamRef stream);
// The stream stands still for about so long, so that the host can queue what comes behind.
void launch_pause(double seconds, StreamRef stream);
// body once, with a profiler that waits to be told (ncu --profile-from-start off) on.
void profile(const std::string& name, const std::function<void()>& body, StreamRef stream);

// Bytes per second from device memory.
double probe_read(Device& device, bool tiny);

struct GpuLimits {
  double read_bytes = 0;  // per second, from device memory
  double bf16_flops = 0;  // per second, cuBLASLt
};
// Prints a record for each probe.
GpuLimits probe_gpu(Device& device, Ops& ops, bool tiny);

}  // namespace quire::perf
