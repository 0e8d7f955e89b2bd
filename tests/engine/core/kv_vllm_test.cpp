// Prefill here, through vLLM's own connector classes, and decode here: vLLM reads what one engine
// keeps, and what the other fetches lies in vLLM's blocks. Runs where NIXL and vLLM's wheel are,
// see vllm_process.h; QUIRE_NIXL_LIBRARY names libnixl_capi.so.

#include "tests/engine/core/vllm_relay.h"

namespace quire::test {
namespace {

using Tokens = std::vector<TokenId>;
constexpr int kPort = 21470;

EngineConfig alone_config(DType dtype) {
  EngineConfig config = kv_config("models/quire-tiny");
  config.model.dtype = dtype;
  return config;
}

EngineConfig nixl_config(DType dtype) { return over_nixl(alone_config(dtype)); }

std::string shape(const char* dtype, int block_size, const char* model = "tiny", int ranks = 1) {
  return fmt::format(
      R"({{"layers": 4, "kv_heads": 2, "head_size": 64, "dtype": "{}", "block_size": {},
          "blocks": 64,
          "ranks": {}, "model": "{}", "port": {}}})",
      dtype, block_size, ranks, model, kPort);
}

bool is_here() { return is_vllm_here(kNixlConnector); }

// What one engine keeps vLLM reads, and another reads it from there.
void relay(const EngineConfig& config, const std::string& vllm_shape) {
  const EngineConfig reading = over_nixl(config);
  VllmRelay(reading, reading, config, vllm_shape).run();
}

void relay(DType dtype, const char* name, int block_size, int ranks = 1) {
  relay(alone_config(dtype), shape(name, block_size, "tiny", ranks));
}

}  // namespace

TEST_CASE("vLLM reads an fp8 cache, and is read", "[nixl][vllm]") {
  if (!is_here()) return;
  EngineConfig config = alone_config(DType::bf16);
  config.cache.cache_dtype = DType::fp8_e4m3;
  relay(config, shape("bfloat16", 16).insert(1, R"("cache_dtype": "fp8", )"));
}

TEST_CASE("vLLM reads gated delta nets' states, and is read", "[nixl][vllm]") {
  if (!is_here()) return;
  for (const char* model : {"qwen3-next", "qwen3-5"})
    if (std::filesystem::exists(golden(model)))
      relay(kv_config(golden(model)), delta_net_shape(kPort));
}

TEST_CASE("vLLM's two ranks have half of a delta net's state each", "[nixl][vllm]") {
  if (!is_here() || !std::filesystem::exists(golden("qwen3-next"))) return;
  relay(kv_config(golden("qwen3-next")), delta_net_shape(kPort, 2));
}

TEST_CASE("vLLM reads Mamba 2's states, and is read", "[nixl][vllm]") {
  if (!is_here() || !std::filesystem::exists(golden("granite-hybrid"))) return;
  relay(kv_config(golden("granite-hybrid")), granite_shape(kPort));
}

TEST_CASE("vLLM's states of another size are refused by their field", "[nixl][vllm]") {
  if (!is_here() || !std::filesystem::exists(golden("qwen3-next"))) return;
  const EngineConfig config = kv_config(golden("qwen3-next"));
  VllmProcess vllm(delta_net_shape(kPort, 1, "[128, 2]"));
  KvPair pair(over_nixl(config), over_nixl(config));
  SteppedEngine alone(config);
  const AddRequest request = relay_request(1, 60);
  const std::string offered =
      vllm.ask(R"({"do": "offer", "blocks": [[5], [6], [7], [8, 9]], "tokens": 60})");
  CHECK(pair.decode(request, member(offered, "params")).token_ids ==
        alone.finish(request).token_ids);
  CHECK(pair.losses(KvLossReason::incompatible) == 1);
}

TEST_CASE("vLLM reads what one engine keeps, and another what vLLM keeps", "[nixl][vllm]") {
  if (!is_here()) return;
  relay(DType::bf16, "bfloat16", 16);
  relay(DType::f16, "float16", 16);
  relay(DType::f32, "float32", 16);
}

TEST_CASE("vLLM's blocks may be larger than those that are kept", "[nixl][vllm]") {
  if (!is_here()) return;
  relay(DType::bf16, "bfloat16", 32);
  relay(DType::bf16, "bfloat16", 64);
}

TEST_CASE("into vLLM's blocks what it lacks is written, and vLLM writes it on",
          "[nixl][push][vllm]") {
  if (!is_here()) return;
  const EngineConfig config = alone_config(DType::bf16);
  for (const int block_size : {16, 32}) {
    const EngineConfig pushing = over_nixl_push(config, block_size);
    VllmRelay(pushing, pushing, config, shape("bfloat16", block_size)).run();
  }
}

TEST_CASE("vLLM's two ranks read half of the heads each, and are read", "[nixl][vllm]") {
  if (!is_here()) return;
  relay(DType::bf16, "bfloat16", 16, 2);
}

TEST_CASE("vLLM's four ranks have two heads twice, and each is read once", "[nixl][vllm]") {
  if (!is_here()) return;
  relay(DType::bf16, "bfloat16", 16, 4);
}

TEST_CASE("vLLM started with another model's name refuses and is refused", "[nixl][vllm]") {
  if (!is_here()) return;
  VllmProcess vllm(shape("bfloat16", 16, "another"));
  KvPair pair(nixl_config(DType::bf16), nixl_config(DType::bf16));
  const AddRequest request = relay_request(1, 60);
  const std::string kept = pair.prefill_params(request.prompt);
  const std::string pulled =
      vllm.ask(fmt::format(R"({{"do": "pull", "params": {}, "tokens": 60}})", kept));
  CHECK(member(pulled, "ok") == "false");
  const std::string offered = vllm.ask(R"({"do": "offer", "blocks": [1, 2, 3, 4], "tokens": 60})");
  SteppedEngine alone(alone_config(DType::bf16));
  CHECK(pair.decode(request, member(offered, "params")).token_ids ==
        alone.finish(request).token_ids);
  CHECK(pair.losses(KvLossReason::incompatible) == 1);
}

TEST_CASE("hashes that are not compared do not matter to vLLM, nor here", "[nixl][vllm]") {
  if (!is_here()) return;
  VllmProcess vllm(shape("bfloat16", 16, "another"), R"({"enforce_handshake_compat": false})");
  EngineConfig decode = nixl_config(DType::bf16);
  decode.kv_transfer.nixl.compare_hash = false;
  KvPair pair(nixl_config(DType::bf16), decode);
  const AddRequest request = relay_request(1, 60);
  const std::string kept = pair.prefill_params(request.prompt);
  const std::string pulled =
      vllm.ask(fmt::format(R"({{"do": "pull", "params": {}, "tokens": 60}})", kept));
  REQUIRE(member(pulled, "ok") == "true");
  const std::string offered = vllm.ask(
      fmt::format(R"({{"do": "offer", "blocks": {}, "tokens": 60}})", member(pulled, "blocks")));
  SteppedEngine alone(alone_config(DType::bf16));
  CHECK(pair.decode(request, member(offered, "params")).token_ids ==
        alone.finish(request).token_ids);
  CHECK(pair.losses() == 0);
}

TEST_CASE("a vLLM server that is killed is a loss, and the prompt is computed here",
          "[nixl][vllm]") {
  if (!is_here()) return;
  VllmProcess vllm(shape("bfloat16", 16));
  KvPair pair(nixl_config(DType::bf16), nixl_config(DType::bf16));
  SteppedEngine alone(alone_config(DType::bf16));
  const std::string offer = R"({"do": "offer", "blocks": [1, 2, 3, 4], "tokens": 60})";
  pair.decode(relay_request(1, 60), member(vllm.ask(offer), "params"));
  CHECK(pair.received().received == 1);
  const std::string offered = member(vllm.ask(offer), "params");
  vllm.end();
  const AddRequest request = relay_request(2, 60);
  CHECK(pair.decode(request, offered).token_ids == alone.finish(request).token_ids);
  CHECK(pair.losses(KvLossReason::peer_lost) == 1);
  CHECK(pair.received().arriving_bytes == 0);
}

TEST_CASE("params that do not fit a vLLM server are a loss and never another's answer",
          "[nixl][vllm]") {
  if (!is_here()) return;
  VllmProcess vllm(shape("bfloat16", 16));
  KvPair pair(nixl_config(DType::bf16), nixl_config(DType::bf16));
  SteppedEngine alone(alone_config(DType::bf16));
  const AddRequest request = relay_request(5, 60);
  const Tokens expected = alone.finish(request).token_ids;
  int lost = 0;
  for (const auto& [what, with] :
       {std::pair("[[1, 2, 3, 4]]", "[[1, 2, 3, 64]]"), std::pair("[[1, 2, 3, 4]]", "[[1, 2, 3]]"),
        std::pair("[[1, 2, 3, 4]]", "[]"), std::pair("\"tp_size\": 1", "\"tp_size\": 2"),
        std::pair("\"tp_size\": 1", "\"tp_size\": 64"), std::pair("vllm-engine", "other")}) {
    std::string params =
        member(vllm.ask(R"({"do": "offer", "blocks": [1, 2, 3, 4], "tokens": 60})"), "params");
    params.replace(params.find(what), std::string_view(what).size(), with);
    INFO(params);
    CHECK(pair.decode(request, params).token_ids == expected);
    CHECK(pair.losses() == ++lost);
  }
}

}  // namespace quire::test
