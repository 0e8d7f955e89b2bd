// Prefill here, through vLLM's own connector classes, and decode here: vLLM reads what one engine
// keeps, and what the other fetches lies in vLLM's blocks. Runs where NIXL and vLLM's wheel are,
// see vllm_process.h; QUIRE_NIXL_LIBRARY names libnixl_capi.so.

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <random>

#include "tests/engine/core/kv_pair.h"
#include "tests/engine/core/vllm_process.h"
#include "tests/engine/core/vllm_shapes.h"

namespace quire::test {
namespace {

using Tokens = std::vector<TokenId>;
constexpr int kPort = 21470;

Tokens random_prompt(unsigned seed, int length) {
  std::mt19937 random(seed);
  Tokens tokens(static_cast<std::size_t>(length));
  for (TokenId& token : tokens) token = static_cast<TokenId>(3 + random() % 380);
  return tokens;
}

AddRequest request_of(unsigned seed, int length) {
  AddRequest request = greedy_request(random_prompt(seed, length), 24);
  request.sampling.ignore_eos = true;
  return request;
}

EngineConfig nixl_config(DType dtype) {
  EngineConfig config = kv_config("models/quire-tiny");
  config.model.dtype = dtype;
  config.kv_transfer.plane = KvPlane::nixl;
  config.kv_transfer.nixl.library = std::getenv("QUIRE_NIXL_LIBRARY");
  config.kv_transfer.nixl.peer_model = "tiny";
  // Of the wheel: another than the newest that is known here.
  if (const char* version = std::getenv("QUIRE_VLLM_VERSION"))
    config.kv_transfer.nixl.profile = fmt::format("vllm-{}", version);
  return config;
}

EngineConfig alone_config(DType dtype) {
  EngineConfig config = kv_config("models/quire-tiny");
  config.model.dtype = dtype;
  return config;
}

std::string shape(const char* dtype, int block_size, const char* model = "tiny", int ranks = 1) {
  return fmt::format(
      R"({{"layers": 4, "kv_heads": 2, "head_size": 64, "dtype": "{}", "block_size": {},
          "blocks": 64,
          "ranks": {}, "model": "{}", "port": {}}})",
      dtype, block_size, ranks, model, kPort);
}

bool is_here() {
  const bool here = std::getenv("QUIRE_NIXL_LIBRARY") != nullptr && VllmProcess::is_here();
  if (!here)
    WARN("skipped: QUIRE_NIXL_LIBRARY, QUIRE_NIXL_PYTHON and QUIRE_VLLM_WHEEL are not set");
  return here;
}

EngineConfig over_nixl(EngineConfig config) {
  config.kv_transfer = nixl_config(DType::f32).kv_transfer;
  return config;
}

// What one engine keeps vLLM reads, and another reads it from there.
void relay(const EngineConfig& config, const std::string& vllm_shape) {
  VllmProcess vllm(vllm_shape);
  KvPair pair(over_nixl(config), over_nixl(config));
  SteppedEngine alone(config);
  INFO(vllm_shape);
  int number = 0;
  for (const int length : {2, 16, 17, 33, 97, 130, 200}) {
    const AddRequest request = request_of(static_cast<unsigned>(length), length);
    INFO(length << " tokens");
    const Tokens expected = alone.finish(request).token_ids;
    const std::string kept = pair.prefill_params(request.prompt);
    const std::string pulled =
        vllm.ask(fmt::format(R"({{"do": "pull", "params": {}, "tokens": {}}})", kept, length));
    INFO(pulled);
    REQUIRE(member(pulled, "ok") == "true");
    const std::string offered = vllm.ask(fmt::format(
        R"({{"do": "offer", "blocks": {}, "tokens": {}}})", member(pulled, "blocks"), length));
    CHECK(pair.decode(request, member(offered, "params")).token_ids == expected);
    ++number;
  }
  CHECK(pair.losses() == 0);
  CHECK(pair.received().received == number);
  for (int i = 0; i < 2000 && pair.sent().kept_bytes > 0; ++i)  // notices are looked for
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  CHECK(pair.sent().sent == number);
  CHECK(pair.sent().kept_bytes == 0);  // vLLM said that it has read them
  std::string released;
  for (int i = 0; i < 200 && static_cast<int>(std::ranges::count(released, '-')) < 2 * number; ++i)
    released = vllm.ask(R"({"do": "released"})");
  CHECK(static_cast<int>(std::ranges::count(released, '-')) == 2 * number);
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
  const AddRequest request = request_of(1, 60);
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
  const AddRequest request = request_of(1, 60);
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
  const AddRequest request = request_of(1, 60);
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
  pair.decode(request_of(1, 60), member(vllm.ask(offer), "params"));
  CHECK(pair.received().received == 1);
  const std::string offered = member(vllm.ask(offer), "params");
  vllm.end();
  const AddRequest request = request_of(2, 60);
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
  const AddRequest request = request_of(5, 60);
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
