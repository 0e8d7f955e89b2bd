#pragma once
// A deterministic engine behind the real channel, on a thread of its own: tokens are a function of
// prompt and position, time and failures are chosen by the test.

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "engine/wire/channel.h"

namespace quire::test {

// The default token at an output position.
TokenId lcg_token(const AddRequest& request, int index, int vocab_size);

Ready default_ready();  // 256 usable blocks of 16 tokens, context 4096, vocabulary 1536

struct FakeEngineOptions {
  // What it says in the handshake.
  Ready ready = default_ready();

  // The token at output position index; unset: lcg_token.
  std::function<TokenId(const AddRequest& request, int index)> next_token;
  std::optional<TokenId> eos;  // ends a request unless it ignores eos

  // What of an event crosses the line; unset: all of it. nullopt: nothing.
  std::function<std::optional<EngineEvent>(const EngineEvent&)> on_wire;

  BlockReport blocks;  // what it says of them, beside a block for each of its requests

  int max_num_seqs = 64;                   // rows per step, the rest waits
  std::chrono::microseconds step_time{0};  // sleep per step
  std::chrono::milliseconds startup_time{0};

  // Failures.
  bool silent_at_startup = false;                  // takes Configure, says nothing
  std::optional<std::string> dies_at_startup;      // with this error text
  std::optional<int> dies_after_steps;             // publishes EngineDead
  std::optional<int> vanishes_after_steps;         // closes without a word
  std::function<bool(const AddRequest&)> rejects;  // ends these with FinishReason::error
};

class FakeEngine {
 public:
  explicit FakeEngine(FakeEngineOptions options = {});
  ~FakeEngine();  // ends the thread

  std::unique_ptr<ClientEnd> take_client_end() { return std::move(client_end_); }

  int num_live() const { return live_; }  // requests that it holds now
  int num_added() const { return added_; }
  int num_aborted() const { return aborted_; }

  // Stands still between steps while held, as an engine in a long step does.
  void hold();
  void release();

 private:
  void run();
  bool start_up();
  void apply(Command& command);
  struct Impl;
  std::unique_ptr<Impl> impl_;
  std::unique_ptr<ClientEnd> client_end_;
  std::atomic<int> live_{0};
  std::atomic<int> added_{0};
  std::atomic<int> aborted_{0};
  std::thread thread_;
};

}  // namespace quire::test
