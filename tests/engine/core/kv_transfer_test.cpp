// One engine prefills, another goes on: the tokens of one engine that does both.

#include <catch2/catch.hpp>
#include <filesystem>
#include <random>

#include "tests/engine/core/kv_lengths.h"
#include "tests/support/golden_folders.h"
#include "tests/support/poison_device.h"

namespace quire::test {
namespace {

using Tokens = std::vector<TokenId>;

void check_nothing_is_left(const KvPair& pair) {
  CHECK(pair.received().arriving_bytes == 0);
  for (const auto* engine : {pair.prefilling.get(), pair.decoding.get()}) {
    const EngineStats stats = engine->core.stats();
    CHECK(stats.num_free_blocks == stats.num_blocks);
    CHECK(stats.late_allocations == 0);
  }
  // The last release may still be on its way.
  for (int i = 0; i < 2000 && pair.sent().kept_bytes > 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  CHECK(pair.sent().kept_bytes == 0);
}

void check_exchange(KvPair& pair, const EngineConfig& alone_config) {
  check_lengths(pair, alone_config);
  CHECK(pair.sent().sent_bytes == pair.received().received_bytes);
  check_nothing_is_left(pair);
}

}  // namespace

TEST_CASE("what one engine prefills another decodes, for every family", "[kv_transfer]") {
  for (const auto& model : golden_models()) {
    INFO(model);
    KvPair pair(kv_config(model), kv_config(model));
    check_exchange(pair, kv_config(model));
  }
}

TEST_CASE("engines with other block sizes exchange keys and values", "[kv_transfer]") {
  for (const auto& model : golden_models()) {
    for (const auto& [prefill, decode] : {std::pair(16, 64), std::pair(64, 16)}) {
      INFO(model << ": blocks of " << prefill << " and " << decode);
      KvPair pair(kv_config(model, prefill), kv_config(model, decode));
      check_exchange(pair, kv_config(model, decode));
    }
  }
}

TEST_CASE("what is here already is not fetched again", "[kv_transfer]") {
  const auto model = golden_models().front();
  KvPair pair(kv_config(model), kv_config(model));
  SteppedEngine alone(kv_config(model));
  const Tokens common = random_prompt(7, 128);
  std::int64_t bytes_of_first = 0;
  for (unsigned turn = 0; turn < 3; ++turn) {
    Tokens prompt = common;
    const Tokens own = random_prompt(100 + turn, 40);
    prompt.insert(prompt.end(), own.begin(), own.end());
    const AddRequest request = request_of(prompt);
    const std::int64_t before = pair.received().received_bytes;
    const RequestOutput output = pair.ask(request);
    CHECK(output.token_ids == alone.finish(request).token_ids);
    CHECK(output.num_cached_tokens == static_cast<int>(prompt.size()) - 1);
    const std::int64_t bytes = pair.received().received_bytes - before;
    if (turn == 0) bytes_of_first = bytes;
    if (turn > 0) CHECK(bytes < bytes_of_first / 2);
  }
  // All of it: nothing is read, and the other side may forget it.
  const AddRequest again = request_of(common);
  alone.finish(again);
  pair.decode(again, "");
  const std::int64_t before = pair.received().received;
  CHECK(pair.ask(again).token_ids == alone.finish(again).token_ids);
  CHECK(pair.received().received <= before + 1);
  check_nothing_is_left(pair);
}

// Beside a recurrent state pages are another's before; nobody runs while it is fetched.
TEST_CASE("what is fetched beside a state finds zeros behind its rows", "[kv_transfer]") {
  const EngineConfig config = kv_config("models/quire-tiny-hybrid");
  PoisonDevice* device = nullptr;
  KvPair pair(config, config, [&](const EngineConfig& c) {
    EngineBackend backend = cpu_backend(c);
    auto poison = std::make_unique<PoisonDevice>(std::move(backend.device));
    device = poison.get();  // at last that of the decoding engine
    backend.device = std::move(poison);
    return backend;
  });
  std::vector<std::size_t> sizes;
  for (const KvTensor& tensor : pair.decoding->core.plan().kv.workers.front().tensors)
    sizes.push_back(tensor.size);
  device->poison_tensors(sizes);
  SteppedEngine alone(config);
  const std::size_t before = device->bytes_zeroed();
  const AddRequest request = request_of(random_prompt(1, 100));
  AddRequest wanted = request;
  wanted.transfer_params = pair.prefill_params(request.prompt);
  const RequestId id = pair.decoding->add(std::move(wanted));
  pair.decoding->step();
  CHECK(device->bytes_zeroed() > before);
  run_awaiting(*pair.decoding);
  CHECK(pair.decoding->outputs[id].token_ids == alone.finish(request).token_ids);
  CHECK(pair.received().received == 1);
}

TEST_CASE("keys and values travel over a Unix socket too", "[kv_transfer]") {
  const auto model = golden_models().front();
  const auto path =
      std::filesystem::temp_directory_path() / ("quire-kv-" + std::to_string(::getpid()) + ".sock");
  EngineConfig prefill = kv_config(model), decode = kv_config(model);
  prefill.kv_transfer.listen = "unix:" + path.string();
  decode.kv_transfer.peers = {{"unix:" + path.string()}};
  KvPair pair(prefill, decode);
  check_exchange(pair, kv_config(model));
}

TEST_CASE("params of another length are a loss, and what was kept is given back", "[kv_transfer]") {
  for (const auto policy : {KvLoadFailurePolicy::recompute, KvLoadFailurePolicy::fail}) {
    const EngineConfig prefill = kv_config(golden_models().front());
    EngineConfig decode = prefill;
    decode.kv_transfer.load_failure_policy = policy;
    KvPair pair(prefill, decode);
    AddRequest request = request_of(random_prompt(1, 40));
    request.transfer_params = pair.prefill_params(random_prompt(1, 41));
    CHECK(pair.sent().kept_bytes > 0);
    request.id = RequestId{900};
    pair.decoding->core.add(std::move(request));
    run_awaiting(*pair.decoding);
    CHECK(pair.losses(KvLossReason::prompt) == 1);
    check_nothing_is_left(pair);
  }
}

TEST_CASE("an engine whose port would be beyond the last does not start", "[kv_transfer]") {
  EngineConfig config = kv_config(golden_models().front());
  config.kv_transfer.role = KvRole::prefill;
  config.kv_transfer.listen = "127.0.0.1:65535";
  const auto start = [&] {
    EngineCore(config, EngineId{1}, cpu_backend(config), [](std::string_view, double) {});
  };
  CHECK_THROWS_WITH(start(), Catch::Contains("65536"));
}

TEST_CASE("an fp8 cache travels as it is", "[kv_transfer][fp8]") {
  EngineConfig config = tiny_config();
  config.cache.cache_dtype = DType::fp8_e4m3;
  config.deterministic = true;
  KvPair pair(config, config);
  check_exchange(pair, config);
}

}  // namespace quire::test
