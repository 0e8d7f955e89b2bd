// Prefill here, through vLLM's own MooncakeConnector, and decode here: one engine writes into
// vLLM's blocks what it keeps, and vLLM writes these into what the other one waits for. Runs where
// Mooncake and vLLM's wheel are, see vllm_process.h.

#include "tests/engine/core/vllm_relay.h"

namespace quire::test {
namespace {

constexpr int kPort = 21480;

EngineConfig alone_config(DType dtype) {
  EngineConfig config = kv_config("models/quire-tiny");
  config.model.dtype = dtype;
  return config;
}

EngineConfig mooncake_config(DType dtype) {
  EngineConfig config = alone_config(dtype);
  config.kv_transfer.plane = KvPlane::mooncake;
  return config;
}

EngineConfig decode_config(DType dtype, int block_size) {
  EngineConfig config = mooncake_config(dtype);
  config.kv_transfer.listen = "127.0.0.1:0";
  config.kv_transfer.peer_block_size = block_size;
  return config;
}

std::string shape(const char* dtype, int block_size, int ranks = 1) {
  return fmt::format(
      R"({{"layers": 4, "kv_heads": 2, "head_size": 64, "dtype": "{}", "block_size": {},
          "blocks": 128, "ranks": {}, "port": {}}})",
      dtype, block_size, ranks, kPort);
}

bool is_here() { return is_vllm_here(kMooncakeConnector); }

void relay(DType dtype, const char* name, int block_size, int ranks = 1, bool fp8 = false) {
  std::string wanted = shape(name, block_size, ranks);
  if (fp8) wanted.insert(1, R"("cache_dtype": "fp8", )");
  const auto cached = [&](EngineConfig config) {
    if (fp8) config.cache.cache_dtype = DType::fp8_e4m3;
    return config;
  };
  VllmRelay(cached(mooncake_config(dtype)), cached(decode_config(dtype, block_size)),
            cached(alone_config(dtype)), wanted)
      .run();
}

}  // namespace

TEST_CASE("vLLM's blocks are written to, and vLLM writes them on", "[mooncake][vllm]") {
  if (!is_here()) return;
  relay(DType::bf16, "bfloat16", 16);
  relay(DType::f16, "float16", 16);
  relay(DType::f32, "float32", 16);
}

TEST_CASE("an fp8 cache is written to vLLM over Mooncake, and by it", "[mooncake][vllm]") {
  if (!is_here()) return;
  for (const int ranks : {1, 2}) relay(DType::bf16, "bfloat16", 16, ranks, true);
}

TEST_CASE("vLLM's blocks over Mooncake may be larger", "[mooncake][vllm]") {
  if (!is_here()) return;
  relay(DType::bf16, "bfloat16", 32);
  relay(DType::bf16, "bfloat16", 64);
}

TEST_CASE("vLLM's ranks get their heads, and write them", "[mooncake][vllm]") {
  if (!is_here()) return;
  relay(DType::bf16, "bfloat16", 16, 2);
  relay(DType::bf16, "bfloat16", 16, 4);
}

TEST_CASE("vLLM's part of a prompt that it has is not written", "[mooncake][vllm]") {
  if (!is_here()) return;
  VllmProcess vllm(shape("bfloat16", 16), "{}", kMooncakeConnector);
  KvPair pair(mooncake_config(DType::bf16), decode_config(DType::bf16, 16));
  const AddRequest request = relay_request(9, 100);
  const std::string kept = pair.prefill_params(request.prompt);
  const std::string pulled =
      vllm.ask(fmt::format(R"({{"do": "pull", "params": {}, "tokens": 100, "hits": 64}})", kept));
  CHECK(member(pulled, "ok") == "true");
  CHECK(pair.sent().sent_bytes == 3 * 4 * 16 * 2 * 2 * 64 * 2);  // the last three of seven blocks
  CHECK(pair.sent().kept_bytes == 0);
}

TEST_CASE("blocks of another size than was said are refused by vLLM", "[mooncake][vllm]") {
  if (!is_here()) return;
  VllmProcess vllm(shape("bfloat16", 32), "{}", kMooncakeConnector);
  KvPair pair(mooncake_config(DType::bf16), decode_config(DType::bf16, 16));
  SteppedEngine alone(alone_config(DType::bf16));
  const AddRequest request = relay_request(1, 60);
  const std::string offered = vllm.ask(
      R"({"do": "offer", "transfer": "xfer-0123456789ab", "blocks": [[1, 2]], "tokens": 60})");
  CHECK(pair.decode(request, member(offered, "params")).token_ids ==
        alone.finish(request).token_ids);
  CHECK(pair.losses() == 1);
}

TEST_CASE("vLLM waits for a prefill that ends, and hears of one that does not",
          "[mooncake][vllm]") {
  if (!is_here()) return;
  VllmProcess vllm(shape("bfloat16", 16), "{}", kMooncakeConnector);
  KvPair pair(mooncake_config(DType::bf16), decode_config(DType::bf16, 16));
  const std::string known = pair.prefill_params(relay_request(1, 20).prompt);
  AddRequest refused = greedy_request(relay_request(2, 60).prompt, 2);
  refused.transfer_params = R"({"do_remote_decode": true, "transfer_id": "xfer-refused-0123"})";
  pair.prefilling->finish(refused);
  const auto at = known.find("\"transfer_id\":\"") + 15;
  std::string params = known;
  params.replace(at, params.find('"', at) - at, "xfer-refused-0123");
  const std::string pulled =
      vllm.ask(fmt::format(R"({{"do": "pull", "params": {}, "tokens": 60}})", params));
  CHECK(member(pulled, "ok") == "false");
  CHECK(pulled.find("late") == std::string::npos);
}

TEST_CASE("a vLLM server that is killed while it prefills is a loss", "[mooncake][vllm]") {
  if (!is_here()) return;
  VllmProcess vllm(shape("bfloat16", 16), "{}", kMooncakeConnector);
  KvPair pair(mooncake_config(DType::bf16), decode_config(DType::bf16, 16));
  SteppedEngine alone(alone_config(DType::bf16));
  const AddRequest request = relay_request(2, 60);
  AddRequest wanted = request;
  wanted.transfer_params = member(
      vllm.ask(R"({"do": "begin", "transfer": "xfer-never-0123456", "tokens": 60})"), "params");
  const RequestId id = pair.decoding->add(wanted);
  for (int i = 0; i < 200; ++i) {
    pair.decoding->step();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  CHECK(pair.received().arriving_bytes > 0);
  vllm.end();
  run_awaiting(*pair.decoding);
  CHECK(pair.decoding->outputs[id].token_ids == alone.finish(request).token_ids);
  CHECK(pair.losses(KvLossReason::peer_lost) == 1);
  CHECK(pair.received().arriving_bytes == 0);
}

}  // namespace quire::test
