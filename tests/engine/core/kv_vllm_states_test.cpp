// Hybrid models by way of vLLM's own NixlPushConnector and MooncakeConnector: one engine writes its
// states into vLLM's blocks, and vLLM writes these into what another one waits for. Runs where
// vllm_process.h says.

#include <random>

#include "tests/engine/core/kv_pair.h"
#include "tests/engine/core/vllm_process.h"
#include "tests/engine/core/vllm_shapes.h"

namespace quire::test {
namespace {

using Tokens = std::vector<TokenId>;
constexpr int kPort = 21490;

AddRequest request_of(int length) {
  std::mt19937 random(static_cast<unsigned>(length));
  Tokens prompt(static_cast<std::size_t>(length));
  for (TokenId& token : prompt) token = static_cast<TokenId>(3 + random() % 380);
  AddRequest request = greedy_request(std::move(prompt), 24);
  request.sampling.ignore_eos = true;
  return request;
}

bool is_here(const VllmConnector& connector) {
  const bool needs_library = &connector == &kNixlConnector;
  const bool here = VllmProcess::is_here(connector) &&
                    (!needs_library || std::getenv("QUIRE_NIXL_LIBRARY") != nullptr);
  if (!here) WARN("skipped: vLLM's connector is not here");
  return here;
}

EngineConfig pushes(const EngineConfig& config) {
  EngineConfig pushing = config;
  pushing.kv_transfer.plane = KvPlane::nixl;
  pushing.kv_transfer.nixl.library = std::getenv("QUIRE_NIXL_LIBRARY");
  pushing.kv_transfer.nixl.peer_model = "tiny";
  pushing.kv_transfer.nixl.pushes = true;
  pushing.kv_transfer.listen = "127.0.0.1:0";
  pushing.kv_transfer.peers.push_back({"127.0.0.1"});
  return pushing;
}

// Of vLLM's both sides of a request have the name that X-Request-Id gave it.
void relay_pushed(const EngineConfig& config, std::string shape, int block_size = 16) {
  shape.insert(1, R"("push": true, )");
  INFO(shape);
  VllmProcess vllm(shape);
  EngineConfig pushing = pushes(config);
  pushing.kv_transfer.peer_block_size = block_size;
  KvPair pair(pushing, pushing);
  SteppedEngine alone(config);
  int number = 0;
  for (const int length : {2, 16, 17, 33, 97, 130, 200}) {
    INFO(length << " tokens");
    const AddRequest request = request_of(length);
    AddRequest prefill = greedy_request(request.prompt, 1);
    prefill.transfer_params = kAskForKeeping;
    prefill.transfer_name = fmt::format("chatcmpl-{}", length);
    const std::string kept = pair.prefilling->finish(std::move(prefill)).transfer_params;
    const std::string pulled = vllm.ask(
        fmt::format(R"({{"do": "pull", "params": {}, "tokens": {}, "name": "chatcmpl-{}"}})", kept,
                    length, length));
    INFO(pulled);
    REQUIRE(member(pulled, "ok") == "true");
    const std::string offered = vllm.ask(
        fmt::format(R"({{"do": "offer", "blocks": {}, "tokens": {}, "name": "chatcmpl-vllm-{}"}})",
                    member(pulled, "blocks"), length, length));
    CHECK(pair.decode(request, member(offered, "params")).token_ids ==
          alone.finish(request).token_ids);
    CHECK(pair.losses() == 0);
    ++number;
  }
  CHECK(pair.received().received == number);
  CHECK(pair.sent().sent == number);
}

void relay_mooncake(const EngineConfig& config, const std::string& shape, int block_size = 16) {
  INFO(shape);
  VllmProcess vllm(shape, "{}", kMooncakeConnector);
  EngineConfig prefill = config;
  prefill.kv_transfer.plane = KvPlane::mooncake;
  EngineConfig decode = prefill;
  decode.kv_transfer.listen = "127.0.0.1:0";
  decode.kv_transfer.peer_block_size = block_size;
  KvPair pair(prefill, decode);
  SteppedEngine alone(config);
  int number = 0;
  for (const int length : {2, 16, 17, 33, 97, 130, 200}) {
    INFO(length << " tokens");
    const AddRequest request = request_of(length);
    const std::string kept = pair.prefill_params(request.prompt);
    const std::string pulled =
        vllm.ask(fmt::format(R"({{"do": "pull", "params": {}, "tokens": {}}})", kept, length));
    INFO(pulled);
    REQUIRE(member(pulled, "ok") == "true");
    const std::string offered = vllm.ask(fmt::format(
        R"({{"do": "offer", "transfer": "xfer-0123456789-{}", "blocks": {}, "tokens": {}}})",
        length, member(pulled, "blocks"), length));
    CHECK(pair.decode(request, member(offered, "params")).token_ids ==
          alone.finish(request).token_ids);
    CHECK(pair.losses() == 0);
    ++number;
  }
  CHECK(pair.received().received == number);
  CHECK(pair.sent().sent == number);
  CHECK(pair.sent().kept_bytes == 0);
}

bool has(const char* model) { return std::filesystem::exists(golden(model)); }

}  // namespace

TEST_CASE("delta nets' states are written into vLLM's blocks, and vLLM writes them",
          "[nixl][push][vllm][states]") {
  if (!is_here(kNixlConnector)) return;
  for (const char* model : {"qwen3-next", "qwen3-5"})
    if (has(model)) relay_pushed(kv_config(golden(model)), delta_net_shape(kPort));
}

TEST_CASE("delta nets' states go to vLLM's two ranks and come from them",
          "[nixl][push][vllm][states]") {
  if (!is_here(kNixlConnector)) return;
  relay_pushed(kv_config(golden("qwen3-5")), delta_net_shape(kPort, 2));
}

TEST_CASE("Mamba 2's states are written into vLLM's blocks, and vLLM writes them",
          "[nixl][push][vllm][states]") {
  if (!is_here(kNixlConnector) || !has("granite-hybrid")) return;
  for (const int ranks : {1, 2})
    relay_pushed(kv_config(golden("granite-hybrid")), granite_shape(kPort, ranks));
}

TEST_CASE("states are written into vLLM's blocks of 32 tokens", "[nixl][push][vllm][states]") {
  if (!is_here(kNixlConnector)) return;
  relay_pushed(kv_config(golden("qwen3-5")), delta_net_shape(kPort, 1, "[128, 3]", 1, 32), 32);
}

TEST_CASE("delta nets' states go over Mooncake to vLLM and back", "[mooncake][vllm][states]") {
  if (!is_here(kMooncakeConnector)) return;
  for (const char* model : {"qwen3-next", "qwen3-5"})
    if (has(model)) relay_mooncake(kv_config(golden(model)), delta_net_shape(kPort));
}

TEST_CASE("over Mooncake vLLM's two ranks have half of a state each", "[mooncake][vllm][states]") {
  if (!is_here(kMooncakeConnector)) return;
  relay_mooncake(kv_config(golden("qwen3-5")), delta_net_shape(kPort, 2));
}

TEST_CASE("Mamba 2's states go over Mooncake to vLLM and back", "[mooncake][vllm][states]") {
  if (!is_here(kMooncakeConnector) || !has("granite-hybrid")) return;
  for (const int ranks : {1, 2})
    relay_mooncake(kv_config(golden("granite-hybrid")), granite_shape(kPort, ranks));
}

// vLLM's kernels may have blocks as large as those that are named.
TEST_CASE("over Mooncake a state's block may be one of vLLM's kernel", "[mooncake][vllm][states]") {
  if (!is_here(kMooncakeConnector)) return;
  relay_mooncake(kv_config(golden("qwen3-5")), delta_net_shape(kPort, 1, "[128, 3]", 1, 32), 32);
  relay_mooncake(kv_config(golden("qwen3-5")), delta_net_shape(kPort, 1, "[128, 3]", 1, 64), 64);
}

}  // namespace quire::test
