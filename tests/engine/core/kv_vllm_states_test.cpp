// Hybrid models by way of vLLM's own NixlPushConnector and MooncakeConnector: one engine writes its
// states into vLLM's blocks, and vLLM writes these into what another one waits for. Runs where
// vllm_process.h says.

#include "tests/engine/core/vllm_relay.h"

namespace quire::test {
namespace {

constexpr int kPort = 21490;

void relay_pushed(const EngineConfig& config, const std::string& shape, int block_size = 16) {
  const EngineConfig pushing = over_nixl_push(config, block_size);
  VllmRelay(pushing, pushing, config, shape).run();
}

void relay_mooncake(const EngineConfig& config, const std::string& shape, int block_size = 16) {
  EngineConfig prefill = config;
  prefill.kv_transfer.plane = KvPlane::mooncake;
  EngineConfig decode = prefill;
  decode.kv_transfer.listen = "127.0.0.1:0";
  decode.kv_transfer.peer_block_size = block_size;
  VllmRelay(prefill, decode, config, shape).run();
}

bool has(const char* model) { return std::filesystem::exists(golden(model)); }

}  // namespace

TEST_CASE("delta nets' states are written into vLLM's blocks, and vLLM writes them",
          "[nixl][push][vllm][states]") {
  if (!is_vllm_here(kNixlConnector)) return;
  for (const char* model : {"qwen3-next", "qwen3-5"})
    if (has(model)) relay_pushed(kv_config(golden(model)), delta_net_shape(kPort));
}

TEST_CASE("delta nets' states go to vLLM's two ranks and come from them",
          "[nixl][push][vllm][states]") {
  if (!is_vllm_here(kNixlConnector)) return;
  relay_pushed(kv_config(golden("qwen3-5")), delta_net_shape(kPort, 2));
}

TEST_CASE("Mamba 2's states are written into vLLM's blocks, and vLLM writes them",
          "[nixl][push][vllm][states]") {
  if (!is_vllm_here(kNixlConnector) || !has("granite-hybrid")) return;
  for (const int ranks : {1, 2})
    relay_pushed(kv_config(golden("granite-hybrid")), granite_shape(kPort, ranks));
}

TEST_CASE("states are written into vLLM's blocks of 32 tokens", "[nixl][push][vllm][states]") {
  if (!is_vllm_here(kNixlConnector)) return;
  relay_pushed(kv_config(golden("qwen3-5")), delta_net_shape(kPort, 1, "[128, 3]", 1, 32), 32);
}

TEST_CASE("delta nets' states go over Mooncake to vLLM and back", "[mooncake][vllm][states]") {
  if (!is_vllm_here(kMooncakeConnector)) return;
  for (const char* model : {"qwen3-next", "qwen3-5"})
    if (has(model)) relay_mooncake(kv_config(golden(model)), delta_net_shape(kPort));
}

TEST_CASE("over Mooncake vLLM's two ranks have half of a state each", "[mooncake][vllm][states]") {
  if (!is_vllm_here(kMooncakeConnector)) return;
  relay_mooncake(kv_config(golden("qwen3-5")), delta_net_shape(kPort, 2));
}

TEST_CASE("Mamba 2's states go over Mooncake to vLLM and back", "[mooncake][vllm][states]") {
  if (!is_vllm_here(kMooncakeConnector) || !has("granite-hybrid")) return;
  for (const int ranks : {1, 2})
    relay_mooncake(kv_config(golden("granite-hybrid")), granite_shape(kPort, ranks));
}

// vLLM's kernels may have blocks as large as those that are named.
TEST_CASE("over Mooncake a state's block may be one of vLLM's kernel", "[mooncake][vllm][states]") {
  if (!is_vllm_here(kMooncakeConnector)) return;
  relay_mooncake(kv_config(golden("qwen3-5")), delta_net_shape(kPort, 1, "[128, 3]", 1, 32), 32);
  relay_mooncake(kv_config(golden("qwen3-5")), delta_net_shape(kPort, 1, "[128, 3]", 1, 64), 64);
}

}  // namespace quire::test
