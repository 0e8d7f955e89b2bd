#pragma once
// A real engine on its thread, with the CPU backend, behind a real group.

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <memory>
#include <string>
#include <vector>

#include "base/async.h"
#include "engine/client/engine_group.h"
#include "engine/core/engine_thread.h"

namespace quire::test {

EngineBackend cpu_backend(const EngineConfig& config);
// The CPU as a device with memory of its own, so that steps overlap.
EngineBackend pretend_backend(const EngineConfig& config);

// Of models/quire-tiny, with a small pool.
EngineConfig tiny_config();

class LiveEngine {
 public:
  LiveEngine(asio::any_io_executor pool, const EngineConfig& config,
             BackendFactory backend = cpu_backend);
  EngineGroup& group() { return *group_; }
  awaitable<void> start();  // fails the test where the engine does not start

  void stop_engine() { thread_.reset(); }

 private:
  std::unique_ptr<EngineThread> thread_;
  std::unique_ptr<EngineGroup> group_;
};

AddRequest greedy_request(std::vector<TokenId> prompt, int max_tokens);

// All of a generation as one output.
awaitable<RequestOutput> read_to_end(Generation& generation);

// Polls until the condition holds; fails the test after ten seconds.
awaitable<void> eventually(std::function<bool()> condition);

}  // namespace quire::test
