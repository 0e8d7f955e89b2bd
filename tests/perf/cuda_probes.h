#pragma once
// What a GPU can do at most, and how long things on it take: a benchmark's limits and its clock.

#include <functional>

#include "backend/device.h"
#include "backend/ops.h"

namespace quire::perf {

// Seconds on the device of one body(), which queues work on the stream: the median of repeats,
// after one that does not count. Buffers should be larger than the L2 cache.
double device_seconds(StreamRef stream, const std::function<void()>& body, int repeats = 9,
                      int bodies_per_repeat = 1);

// Uniform bf16 in [−1, 1) times scale: products of zeros would run at a lower power.
void fill_bf16(TensorView tensor, float scale, StreamRef stream);
// Reads all bytes once (a multiple of 16).
void read_bytes(const void* data, std::size_t bytes, StreamRef stream);
void launch_empty(StreamRef stream);

// Bytes per second from device memory.
double probe_read(Device& device, bool tiny);

struct GpuLimits {
  double read_bytes = 0;  // per second, from device memory
  double bf16_flops = 0;  // per second, cuBLASLt
};
// Prints a record for each probe.
GpuLimits probe_gpu(Device& device, Ops& ops, bool tiny);

}  // namespace quire::perf
