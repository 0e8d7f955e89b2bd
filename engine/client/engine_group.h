#pragma once
// All engines of one model, seen from the server: start-up, choice of replica, health, drain. Every
// method may be called from any strand.

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/async.h"
#include "base/result.h"
#include "engine/client/generation.h"
#include "engine/wire/messages.h"

namespace quire {

class ClientEnd;  // engine/wire/channel.h

enum class EngineGroupState : std::uint8_t { starting, ready, draining, dead };

// The front end's view over engines: smallest max_model_len, equal block_size, blocks kept per
// engine.
struct ReadyInfo {
  int max_model_len = 0;
  int block_size = 0;
  int vocab_size = 0;
  std::string dtype;
  std::string dp_stats_address;
  std::vector<Ready> engines;  // by rank
  std::int64_t total_gpu_blocks() const;
  std::int64_t total_kv_cache_size_tokens() const;
};

struct EngineGroupOptions {
  std::chrono::milliseconds ready_timeout{std::chrono::minutes(10)};  // per silence, not in all
};

class EngineGroup {
 public:
  // Called after every step of an engine, on an I/O thread, steps of one engine in order.
  using StepObserver = std::function<void(EngineId, const EngineStats&)>;

  // One end per engine, by rank. Engines may be anywhere: a thread, a process, a machine.
  EngineGroup(asio::any_io_executor executor, std::vector<std::unique_ptr<ClientEnd>> engines,
              EngineConfig config, EngineGroupOptions options = {});
  ~EngineGroup();

  void on_step(StepObserver observer);  // before start()

  // Handshake with all engines. The error says which engine failed, and in its own words; the
  // group is dead then.
  awaitable<Result<void>> start();

  EngineGroupState state() const;
  std::string progress() const;    // while starting: what it waits for, one line
  std::string error() const;       // when dead: why
  const ReadyInfo& ready() const;  // once ready; stays valid

  int num_engines() const;
  EngineStats stats(EngineId engine) const;  // after its latest step

  // To the least loaded engine. Errors: overloaded (starting, queue full), unavailable (draining,
  // dead), invalid_argument (cannot fit this engine, the detail has the number exceeded).
  Result<Generation> submit(AddRequest request);

  // Refuses new requests, waits until the running ones have ended or the deadline comes; then
  // aborts what is left.
  awaitable<void> drain(std::chrono::steady_clock::time_point deadline);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire
