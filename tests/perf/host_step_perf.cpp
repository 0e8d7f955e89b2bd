// What the host does for a decode step beside a GPU: scheduling, input arrays, staging, sampling's
// books, output. Operators and graphs do nothing here, so that all that is left is the engine's
// own. Counted rather than timed: the difference of two runs of
//
//   valgrind --tool=callgrind host_step_perf ROWS STEPS
//
// over the difference of their STEPS is instructions per step, the same in every run.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "base/log.h"
#include "cpu/cpu_backend.h"
#include "cuda/cuda_backend.h"
#include "engine/core/engine_core.h"
#include "backend/measuring_ops.h"
#include "tests/support/forwarding_device.h"

namespace quire::test {
namespace {

// A device with memory of its own, whose graphs are empty.
class IdleDevice final : public ForwardingDevice {
 public:
  IdleDevice() : ForwardingDevice(make_cpu_device()) {}
  bool is_host_memory() const override { return false; }
  std::unique_ptr<Graph> capture(const std::function<void()>&) override {
    return std::make_unique<Empty>();
  }

 private:
  class Empty final : public Graph {
   public:
    void replay(StreamRef) override {}
  };
};

EngineConfig config_for(int rows) {
  EngineConfig config;
  config.model.path = "models/quire-tiny";
  config.model.load_format = LoadFormat::dummy;
  config.model.max_model_len = 8192;
  config.device = DeviceKind::cuda;
  config.cache.num_gpu_blocks_override = 1 + std::max(rows * 64, 512);
  config.cache.kv_cache_memory_bytes = std::int64_t{2} << 30;
  config.scheduler.max_num_seqs = 256;
  return config;
}

AddRequest request(int row) {
  AddRequest request;
  request.id = RequestId{static_cast<std::uint64_t>(row) + 1};
  for (int i = 0; i < 100; ++i) request.prompt.push_back((7 * row + i) % 300);
  request.sampling.max_tokens = 900;
  request.sampling.ignore_eos = true;
  return request;
}

// Gives the tokens that came out, so that nothing is left out as unused.
std::size_t run(int rows, int steps) {
  const EngineConfig config = config_for(rows);
  EngineCore engine(config, EngineId{0},
                    {.kind = DeviceKind::cuda,
                     .device = std::make_unique<IdleDevice>(),
                     .ops = make_measuring_ops(cuda_traits())},
                    [](std::string_view, double) {});
  for (int row = 0; row < rows; ++row) engine.add(request(row));
  std::size_t tokens = 0;
  for (int i = 0; i < 50 + steps; ++i) tokens += engine.step().tokens.size();
  return tokens;
}

}  // namespace
}  // namespace quire::test

int main(int argc, char** argv) {
  if (argc != 3) return std::fputs("host_step_perf ROWS STEPS\n", stderr), 2;
  quire::log::configure(quire::log::Format::text, quire::log::Level::warn);
  const std::size_t tokens = quire::test::run(std::atoi(argv[1]), std::atoi(argv[2]));
  std::printf("%zu tokens\n", tokens);
}
