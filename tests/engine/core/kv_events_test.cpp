// What a router hears of a real engine.

#include <unistd.h>
#include <zmq.h>

#include <catch2/catch.hpp>

#include "engine/core/engine_core.h"
#include "engine/kv_events/encoding.h"
#include "engine/kv_hash/event_hash.h"
#include "tests/engine/core/live_engine.h"

namespace quire::test {
namespace {

// Every batch so far, through the replay address: without their first ten bytes, which hold the
// time.
std::vector<std::string> replayed(const std::string& endpoint) {
  void* const context = zmq_ctx_new();
  void* const socket = zmq_socket(context, ZMQ_DEALER);
  const int timeout_ms = 10'000, none = 0;
  zmq_setsockopt(socket, ZMQ_RCVTIMEO, &timeout_ms, sizeof timeout_ms);
  zmq_setsockopt(socket, ZMQ_LINGER, &none, sizeof none);
  zmq_connect(socket, endpoint.c_str());
  zmq_send(socket, "", 0, ZMQ_SNDMORE);
  zmq_send(socket, "\0\0\0\0\0\0\0\0", 8, 0);
  std::vector<std::string> payloads;
  std::vector<char> frame(1 << 20);
  for (int number = 0;; ++number) {  // three frames each: empty, sequence number, batch
    const int size = zmq_recv(socket, frame.data(), frame.size(), 0);
    if (size < 0 || (number % 3 == 2 && size == 0)) break;
    if (number % 3 == 2) payloads.emplace_back(frame.data() + 10, size - 10);
  }
  zmq_close(socket);
  zmq_ctx_term(context);
  return payloads;
}

void run_to_end(EngineCore& engine, std::vector<TokenId> prompt) {
  AddRequest request = greedy_request(std::move(prompt), 8);
  request.id = RequestId{1};
  engine.add(std::move(request));
  while (engine.has_work()) engine.step();
}

}  // namespace

TEST_CASE("An engine says which blocks of a prompt it holds, by hashes that others can compute") {
  EngineConfig config = tiny_config();
  const std::string address = "ipc:///tmp/quire_kv_events_" + std::to_string(getpid());
  config.kv_events.endpoint = address;
  config.kv_events.replay_endpoint = address + "_replay";
  config.kv_events.hash_seed = "0";
  EngineCore engine(config, EngineId{0}, cpu_backend(config), [](std::string_view, double) {});

  std::vector<TokenId> prompt;
  for (TokenId token = 1; token <= 40; ++token) prompt.push_back(token);
  run_to_end(engine, prompt);

  const std::vector<TokenId> blocks(prompt.begin(), prompt.begin() + 32);
  RequestInit init;
  init.prompt = blocks;
  Request request(std::move(init));
  EventHasher(16, root_hash("0")).extend(request, 32);
  const KvEvent stored =
      BlockStored{.hashes = {{request.event_hashes[0]}, {request.event_hashes[1]}},
                  .parent = {},
                  .token_ids = blocks,
                  .block_size = 16,
                  .lora_id = {},
                  .lora_name = "",
                  .group = 0,
                  .extra_keys = {{}, {}}};
  const KvEventFormat format{.groups = event_groups(engine.plan().kv)};
  const auto batches = replayed(config.kv_events.replay_endpoint);
  REQUIRE_FALSE(batches.empty());
  CHECK(batches.front() == encode_kv_events(0, std::span(&stored, 1), format).substr(10));

  run_to_end(engine, prompt);  // all of it is held already
  CHECK(replayed(config.kv_events.replay_endpoint).size() == batches.size());
  for (const std::string& endpoint : {config.kv_events.endpoint, config.kv_events.replay_endpoint})
    unlink(endpoint.substr(6).c_str());
}

}  // namespace quire::test
