// One engine prefills, another goes on, over NIXL's own library: QUIRE_NIXL_LIBRARY names
// libnixl_capi.so. Without it nothing of this runs.

#include <catch2/catch.hpp>
#include <cstdlib>
#include <random>

#include "tests/engine/core/kv_lengths.h"
#include "tests/support/golden_folders.h"

namespace quire::test {
namespace {

using Tokens = std::vector<TokenId>;

EngineConfig over_nixl(EngineConfig config) {
  config.kv_transfer.plane = KvPlane::nixl;
  config.kv_transfer.nixl.library = std::getenv("QUIRE_NIXL_LIBRARY");
  return config;
}

// False: the model is one that the plane refuses, and says so.
bool is_carried(const EngineConfig& config) {
  try {
    const KvPair pair(over_nixl(config), over_nixl(config));
    return true;
  } catch (const Failure& failure) {
    CHECK(failure.error().field == "KvTransferConfig::plane");
    return false;
  }
}

bool has_library() {
  const bool has = std::getenv("QUIRE_NIXL_LIBRARY") != nullptr;
  if (!has) WARN("skipped: QUIRE_NIXL_LIBRARY does not name libnixl_capi.so");
  return has;
}

}  // namespace

TEST_CASE("what one engine prefills another decodes over NIXL", "[nixl]") {
  if (!has_library()) return;
  int num_carried = 0;
  for (const auto& model : golden_models()) {
    INFO(model);
    if (!is_carried(kv_config(model))) continue;
    ++num_carried;
    for (const auto& [prefill, decode] : {std::pair(0, 0), std::pair(16, 64), std::pair(64, 16)}) {
      INFO("blocks of " << prefill << " and " << decode);
      KvPair pair(over_nixl(kv_config(model, prefill)), over_nixl(kv_config(model, decode)));
      check_lengths(pair, kv_config(model, decode));
    }
  }
  CHECK(num_carried > 0);
}

TEST_CASE("an fp8 cache travels over NIXL", "[nixl]") {
  if (!has_library()) return;
  int num_carried = 0;
  for (const auto& model : golden_models()) {
    INFO(model);
    EngineConfig config = kv_config(model);
    config.model.dtype = DType::bf16;
    config.cache.cache_dtype = DType::fp8_e4m3;
    if (!is_carried(config)) continue;
    ++num_carried;
    KvPair pair(over_nixl(config), over_nixl(config));
    check_lengths(pair, config);
  }
  CHECK(num_carried > 0);
}

TEST_CASE("an fp8 cache is not taken for one of another dtype over NIXL", "[nixl]") {
  if (!has_library()) return;
  const EngineConfig config = kv_config(golden_models().front());
  EngineConfig fp8 = config;
  fp8.cache.cache_dtype = DType::fp8_e4m3;
  SteppedEngine alone(config);
  for (const bool compares : {true, false}) {
    EngineConfig decode = over_nixl(config);
    decode.kv_transfer.nixl.compare_hash = compares;
    KvPair pair(over_nixl(fp8), decode);
    const AddRequest request = request_of(random_prompt(5, 60));
    CHECK(pair.ask(request).token_ids == alone.finish(request).token_ids);
    CHECK(pair.losses(KvLossReason::incompatible) == 1);
  }
}

TEST_CASE("over NIXL only what is not here is read", "[nixl]") {
  if (!has_library()) return;
  const EngineConfig config = kv_config(golden_models().front());
  KvPair pair(over_nixl(config), over_nixl(config));
  SteppedEngine alone(config);
  const Tokens common = random_prompt(7, 128);
  std::int64_t bytes_of_first = 0;
  for (unsigned turn = 0; turn < 3; ++turn) {
    Tokens prompt = common;
    const Tokens own = random_prompt(100 + turn, 40);
    prompt.insert(prompt.end(), own.begin(), own.end());
    const AddRequest request = request_of(prompt);
    const std::int64_t before = pair.received().received_bytes;
    CHECK(pair.ask(request).token_ids == alone.finish(request).token_ids);
    const std::int64_t bytes = pair.received().received_bytes - before;
    if (turn == 0) bytes_of_first = bytes;
    if (turn > 0) CHECK(bytes < bytes_of_first / 2);
  }
  CHECK(pair.losses() == 0);
}

TEST_CASE("over NIXL a server that was started with another model's name is refused", "[nixl]") {
  if (!has_library()) return;
  const EngineConfig config = over_nixl(kv_config(golden_models().front()));
  EngineConfig other = config;
  other.kv_transfer.nixl.peer_model = "another/name";
  KvPair pair(config, other);
  const AddRequest request = request_of(random_prompt(5, 60));
  SteppedEngine alone(kv_config(golden_models().front()));
  CHECK(pair.ask(request).token_ids == alone.finish(request).token_ids);
  CHECK(pair.losses(KvLossReason::incompatible) == 1);
}

TEST_CASE("what the plane nixl does not know is refused when an engine starts", "[nixl]") {
  if (!has_library()) return;
  const EngineConfig config = over_nixl(kv_config("models/quire-tiny"));
  const auto field_of = [&](auto change) {
    EngineConfig changed = config;
    change(changed.kv_transfer.nixl);
    try {
      const KvPair pair(changed, config);
    } catch (const Failure& failure) {
      return failure.error().field;
    }
    return std::string();
  };
  CHECK(field_of([](NixlConfig&) {}).empty());
  CHECK(field_of([](NixlConfig& c) { c.profile = "vllm-1"; }) == "NixlConfig::profile");
  CHECK(field_of([](NixlConfig& c) { c.peer_attention = "FLASHINFER"; }) ==
        "NixlConfig::peer_attention");
  CHECK(field_of([](NixlConfig& c) { c.library = "/nowhere.so"; }) == "NixlConfig::library");
}

TEST_CASE("over NIXL a prefill of other tokens is not taken", "[nixl]") {
  if (!has_library()) return;
  const EngineConfig config = over_nixl(kv_config(golden_models().front()));
  KvPair pair(config, config);
  const std::string params = pair.prefill_params(random_prompt(1, 50));
  const AddRequest request = request_of(random_prompt(2, 50));
  SteppedEngine alone(kv_config(golden_models().front()));
  CHECK(pair.decode(request, params).token_ids == alone.finish(request).token_ids);
  CHECK(pair.losses(KvLossReason::prompt) == 1);
}

TEST_CASE("over NIXL a server that is gone is a loss, and the prompt is computed here", "[nixl]") {
  if (!has_library()) return;
  const EngineConfig config = over_nixl(kv_config(golden_models().front()));
  KvPair pair(config, config);
  const AddRequest request = request_of(random_prompt(3, 90));
  SteppedEngine alone(kv_config(golden_models().front()));
  const Tokens expected = alone.finish(request).token_ids;
  CHECK(pair.ask(request).token_ids == expected);  // they know each other
  const AddRequest second = request_of(random_prompt(4, 90));
  const std::string params = pair.prefill_params(second.prompt);
  pair.prefilling.reset();
  CHECK(pair.decode(second, params).token_ids == alone.finish(second).token_ids);
  CHECK(pair.losses(KvLossReason::peer_lost) == 1);
  CHECK(pair.received().arriving_bytes == 0);
}

TEST_CASE("over NIXL what nobody fetches ends with its lease", "[nixl]") {
  if (!has_library()) return;
  EngineConfig config = over_nixl(kv_config(golden_models().front()));
  config.kv_transfer.lease_seconds = 1;
  KvPair pair(config, config);
  const std::string params = pair.prefill_params(random_prompt(6, 90));
  CHECK(pair.sent().kept_bytes > 0);
  for (int i = 0; i < 5000 && pair.sent().kept_bytes > 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  CHECK(pair.sent().kept_bytes == 0);
  CHECK(pair.sent().expired == 1);
  // Its blocks are still there to be read, but nobody vouches for them.
  pair.prefill_params(random_prompt(8, 200));
}

}  // namespace quire::test
