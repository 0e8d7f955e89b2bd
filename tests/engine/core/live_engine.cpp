#include "tests/engine/core/live_engine.h"

#include <catch2/catch.hpp>

#include "cpu/cpu_backend.h"
#include "engine/wire/in_process_channel.h"
#include "tests/support/pretend_device.h"

namespace quire::test {

EngineBackend cpu_backend(const EngineConfig& config) {
  return {.kind = DeviceKind::cpu,
          .device = make_cpu_device(),
          .ops = make_cpu_ops({.threads = config.cpu_threads})};
}

EngineBackend pretend_backend(const EngineConfig& config) {
  EngineBackend backend = cpu_backend(config);
  backend.device = std::make_unique<PretendDevice>(std::move(backend.device), nullptr);
  return backend;
}

EngineConfig tiny_config() {
  EngineConfig config;
  config.model.path = "models/quire-tiny";
  config.model.max_model_len = 1024;
  config.cache.kv_cache_memory_bytes = std::int64_t{256} << 20;
  config.cache.num_gpu_blocks_override = 1025;
  config.scheduler.max_num_seqs = 32;
  config.scheduler.max_num_batched_tokens = 512;
  config.cpu_threads = 1;
  return config;
}

LiveEngine::LiveEngine(asio::any_io_executor pool, const EngineConfig& config,
                       BackendFactory backend) {
  ChannelEnds ends = make_in_process_channel();
  thread_ = std::make_unique<EngineThread>(EngineId{0}, std::move(ends.engine), std::move(backend));
  std::vector<std::unique_ptr<ClientEnd>> clients;
  clients.push_back(std::move(ends.client));
  group_ = std::make_unique<EngineGroup>(pool, std::move(clients), config);
}

awaitable<void> LiveEngine::start() {
  const auto started = co_await group_->start();
  INFO((started.has_error() ? started.error().detail : std::string()));
  REQUIRE(started.has_value());
}

AddRequest greedy_request(std::vector<TokenId> prompt, int max_tokens) {
  AddRequest request;
  request.prompt = std::move(prompt);
  request.sampling.temperature = 0;
  request.sampling.max_tokens = max_tokens;
  request.eos_token_ids = {1523};
  return request;
}

awaitable<RequestOutput> read_to_end(Generation& generation) {
  auto all = co_await generation.next();
  REQUIRE(all);
  while (auto output = co_await generation.next()) merge(*all, std::move(*output));
  co_return *all;
}

awaitable<void> eventually(std::function<bool()> condition) {
  for (int i = 0; i < 10'000 && !condition(); ++i) co_await sleep_for(std::chrono::milliseconds(1));
  REQUIRE(condition());
}

}  // namespace quire::test
