#pragma once
// Prompts that one engine prefills, vLLM's own connector takes and offers on, and another engine
// goes on with: the answers must be those of an engine alone.

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>

#include "tests/engine/core/kv_pair.h"
#include "tests/engine/core/vllm_process.h"
#include "tests/engine/core/vllm_shapes.h"

namespace quire::test {

inline bool is_vllm_here(const VllmConnector& connector) {
  const bool needs_library = &connector == &kNixlConnector;
  const bool here = VllmProcess::is_here(connector) &&
                    (!needs_library || std::getenv("QUIRE_NIXL_LIBRARY") != nullptr);
  if (!here)
    WARN("skipped: QUIRE_VLLM_WHEEL, "
         << connector.python << (needs_library ? " and QUIRE_NIXL_LIBRARY" : "") << " are not set");
  return here;
}

// Greedy, of random tokens that every model here has.
inline AddRequest relay_request(unsigned seed, int length) {
  std::mt19937 random(seed);
  std::vector<TokenId> prompt(static_cast<std::size_t>(length));
  for (TokenId& token : prompt) token = static_cast<TokenId>(3 + random() % 380);
  AddRequest request = greedy_request(std::move(prompt), 24);
  request.sampling.ignore_eos = true;
  return request;
}

inline EngineConfig over_nixl(EngineConfig config) {
  config.kv_transfer.plane = KvPlane::nixl;
  config.kv_transfer.nixl.library = std::getenv("QUIRE_NIXL_LIBRARY");
  config.kv_transfer.nixl.peer_model = "tiny";
  // Of the wheel: another than the newest that is known here.
  if (const char* version = std::getenv("QUIRE_VLLM_VERSION"))
    config.kv_transfer.nixl.profile = fmt::format("vllm-{}", version);
  return config;
}

inline EngineConfig over_nixl_push(const EngineConfig& config, int block_size = 16) {
  EngineConfig pushing = over_nixl(config);
  pushing.kv_transfer.nixl.pushes = true;
  pushing.kv_transfer.listen = "127.0.0.1:0";
  pushing.kv_transfer.peers.push_back({"127.0.0.1"});
  pushing.kv_transfer.peer_block_size = block_size;
  return pushing;
}

class VllmRelay {
 public:
  // `alone`: without a transfer. The shape is vLLM's.
  VllmRelay(const EngineConfig& prefill, const EngineConfig& decode, const EngineConfig& alone,
            const std::string& shape)
      : config_(prefill.kv_transfer),
        shape_(config_.pushes_nixl() ? "{\"push\": true, " + shape.substr(1) : shape),
        vllm_(shape_, "{}", config_.uses_mooncake() ? kMooncakeConnector : kNixlConnector),
        pair_(prefill, decode),
        alone_(alone) {}

  void run() {
    INFO(shape_);
    const std::vector<int> lengths{2, 16, 17, 33, 97, 130, 200};
    for (const int length : lengths) relay(length);
    const auto number = static_cast<int>(lengths.size());
    CHECK(pair_.losses() == 0);
    CHECK(pair_.received().received == number);
    for (int i = 0; i < 2000 && pair_.sent().kept_bytes > 0; ++i)  // notices are looked for
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    CHECK(pair_.sent().sent == num_taken_);
    CHECK(pair_.sent().kept_bytes == 0);  // vLLM has said that it has them
    std::string released;
    for (int i = 0; i < 200 && num_names(released) < number; ++i)
      released = member(vllm_.ask(R"({"do": "released"})"), "requests");
    INFO(released);
    CHECK(num_names(released) == number);
  }

 private:
  static int num_names(const std::string& list) {
    return static_cast<int>(std::ranges::count(list, '"')) / 2;
  }

  // Its answer. Of a push both sides of a request have the name that X-Request-Id gave it.
  std::string taken(const std::vector<TokenId>& prompt, const std::string& name,
                    const std::string& more = "") {
    AddRequest prefill = greedy_request(prompt, 1);
    prefill.transfer_params = kAskForKeeping;
    prefill.transfer_name = name;
    const std::string kept = pair_.prefilling->finish(std::move(prefill)).transfer_params;
    std::string pulled =
        vllm_.ask(fmt::format(R"({{"do": "pull", "params": {}, "tokens": {}{}{}}})", kept,
                              prompt.size(), named(name), more));
    INFO(pulled);
    REQUIRE(member(pulled, "ok") == "true");
    ++num_taken_;
    return pulled;
  }
  std::string named(const std::string& name) const {
    return config_.pushes_nixl() ? fmt::format(R"(, "name": "{}")", name) : std::string();
  }

  void relay(int length) {
    INFO(length << " tokens");
    const AddRequest request = relay_request(static_cast<unsigned>(length), length);
    const std::string own = fmt::format("chatcmpl-{}", length);
    std::string blocks = member(taken(request.prompt, own), "blocks");
    constexpr int kHits = 96;  // tokens: blocks of 16, 32 and 48 end there
    if (config_.pushes_nixl() && length > kHits + 1)
      blocks = member(taken(request.prompt, own + "-again",
                            fmt::format(R"(, "hits": {}, "known": {})", kHits, blocks)),
                      "blocks");
    const std::string transfer =
        config_.uses_mooncake() ? fmt::format(R"(, "transfer": "xfer-0123456789-{}")", length) : "";
    const std::string offered =
        vllm_.ask(fmt::format(R"({{"do": "offer", "blocks": {}, "tokens": {}{}{}}})", blocks,
                              length, transfer, named("chatcmpl-vllm-" + own)));
    CHECK(pair_.decode(request, member(offered, "params")).token_ids ==
          alone_.finish(request).token_ids);
  }

  const KvTransferConfig config_;
  const std::string shape_;
  VllmProcess vllm_;
  KvPair pair_;
  SteppedEngine alone_;
  int num_taken_ = 0;
};

}  // namespace quire::test
