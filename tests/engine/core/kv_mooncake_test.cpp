// One engine prefills, another goes on, over Mooncake's protocols.

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <random>

#include "tests/engine/core/kv_lengths.h"
#include "tests/support/golden_folders.h"

namespace quire::test {
namespace {

using Tokens = std::vector<TokenId>;

EngineConfig prefill_of(EngineConfig config) {
  config.kv_transfer.plane = KvPlane::mooncake;
  return config;
}

EngineConfig decode_of(EngineConfig config, int peer_block_size = 0) {
  config.kv_transfer.plane = KvPlane::mooncake;
  config.kv_transfer.listen = "127.0.0.1:0";
  config.kv_transfer.peer_block_size = peer_block_size;
  return config;
}

std::string keep(const std::string& name) {
  return R"({"do_remote_decode": true, "do_remote_prefill": false, "transfer_id": ")" + name +
         "\"}";
}

// What a proxy makes of a prefill's answer for another name.
std::string with_name(std::string params, const std::string& name) {
  const auto at = params.find("\"transfer_id\":\"") + 15;
  return params.replace(at, params.find('"', at) - at, name);
}

// Room is taken just before the other side is asked.
void step_until_asked(KvPair& pair) {
  for (int i = 0; i < 5000 && pair.received().arriving_bytes == 0; ++i) {
    pair.decoding->step();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  CHECK(pair.received().arriving_bytes > 0);
}

}  // namespace

TEST_CASE("what one engine prefills another decodes over Mooncake", "[mooncake]") {
  for (const auto& model : golden_models()) {
    INFO(model);
    for (const auto& [prefill, decode, wire] :
         {std::tuple(0, 0, 16), std::tuple(16, 64, 64), std::tuple(64, 16, 48)}) {
      INFO("blocks of " << prefill << " and " << decode << ", " << wire << " between them");
      KvPair pair(prefill_of(kv_config(model, prefill)), decode_of(kv_config(model, decode), wire));
      check_lengths(pair, kv_config(model, decode));
    }
  }
}

TEST_CASE("an fp8 cache travels over Mooncake", "[mooncake]") {
  for (const auto& model : golden_models()) {
    INFO(model);
    EngineConfig config = kv_config(model);
    config.model.dtype = DType::bf16;
    config.cache.cache_dtype = DType::fp8_e4m3;
    KvPair pair(prefill_of(config), decode_of(config));
    check_lengths(pair, config);
  }
}

TEST_CASE("over Mooncake only what is not here is written", "[mooncake]") {
  const EngineConfig config = kv_config(golden_models().front());
  KvPair pair(prefill_of(config), decode_of(config));
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

TEST_CASE("over Mooncake beside a state only those keys and values are written that are not here",
          "[mooncake][states]") {
  EngineConfig config = kv_config("models/quire-tiny-hybrid");
  config.cache.mamba_cache_mode = StateCacheMode::align;
  KvPair pair(prefill_of(config), decode_of(config));
  SteppedEngine alone(config);
  const auto bytes_of = [&](unsigned seed, TokenId last) {
    AddRequest request = request_of(random_prompt(seed, 248));
    request.prompt[245] = last;
    const std::int64_t before = pair.received().received_bytes;
    CHECK(pair.ask(request).token_ids == alone.finish(request).token_ids);
    return pair.received().received_bytes - before;
  };
  // A part of it was computed here, and the state kept where it ends.
  pair.decoding->finish(request_of(random_prompt(7, 248)));
  const std::int64_t rest = bytes_of(7, 5), whole = bytes_of(8, 5);
  INFO(rest << " of " << whole << " bytes");
  CHECK(rest < whole);
  CHECK(rest > 0);
  CHECK(pair.losses() == 0);
  CHECK(pair.received().received == 2);
}

TEST_CASE("over Mooncake both may be asked at once, and either may be first", "[mooncake]") {
  const EngineConfig config = kv_config(golden_models().front());
  KvPair pair(prefill_of(config), decode_of(config));
  SteppedEngine alone(config);
  const std::string known = pair.prefill_params(random_prompt(1, 20));
  for (const bool decode_first : {true, false}) {
    const AddRequest request = request_of(random_prompt(decode_first ? 2 : 3, 150));
    const std::string name = fmt::format("xfer-0123456789ab-{}", decode_first);
    AddRequest prefill = greedy_request(request.prompt, 1), decode = request;
    prefill.transfer_params = keep(name);
    decode.transfer_params = with_name(known, name);
    RequestId id;
    if (decode_first) id = pair.decoding->add(decode);
    for (int i = 0; decode_first && i < 20; ++i) pair.decoding->step();
    pair.prefilling->add(prefill);
    while (pair.prefilling->core.has_work()) pair.prefilling->step();
    if (!decode_first) id = pair.decoding->add(decode);
    run_awaiting(*pair.decoding);
    CHECK(pair.decoding->outputs[id].token_ids == alone.finish(request).token_ids);
  }
  CHECK(pair.losses() == 0);
  CHECK(pair.received().received == 2);
}

TEST_CASE("over Mooncake another prompt, model or start is a loss and never another's answer",
          "[mooncake]") {
  const EngineConfig config = kv_config(golden_models().front());
  KvPair pair(prefill_of(config), decode_of(config));
  SteppedEngine alone(config);
  const AddRequest request = request_of(random_prompt(5, 60));
  const Tokens expected = alone.finish(request).token_ids;
  const std::string of_another = pair.prefill_params(random_prompt(6, 60));
  CHECK(pair.decode(request, of_another).token_ids == expected);
  CHECK(pair.losses(KvLossReason::prompt) == 1);

  std::string elsewhere = of_another;
  elsewhere.replace(elsewhere.find("\"remote_engine_id\":\"") + 20, 4, "none");
  CHECK(pair.decode(request, elsewhere).token_ids == expected);
  CHECK(pair.losses(KvLossReason::expired) == 1);

  const std::string once = pair.prefill_params(request.prompt);
  CHECK(pair.decode(request, once).token_ids == expected);
  const AddRequest longer = request_of(random_prompt(8, 90));
  CHECK(pair.decode(longer, once).token_ids == alone.finish(longer).token_ids);
  CHECK(pair.losses(KvLossReason::expired) == 2);  // it was written once

  AddRequest refused = greedy_request(request.prompt, 2);
  refused.transfer_params = keep("xfer-refused-0123456789");
  pair.prefilling->finish(refused);
  CHECK(pair.decode(request, with_name(of_another, "xfer-refused-0123456789")).token_ids ==
        expected);
  CHECK(pair.losses(KvLossReason::refused) == 1);

  EngineConfig other = config;
  other.model.dtype = DType::bf16;
  KvPair mixed(prefill_of(other), decode_of(config));
  CHECK(mixed.ask(request).token_ids == expected);
  CHECK(mixed.losses(KvLossReason::incompatible) == 1);
}

TEST_CASE("over Mooncake a name is one prompt's until it is fetched", "[mooncake]") {
  const EngineConfig config = kv_config(golden_models().front());
  KvPair pair(prefill_of(config), decode_of(config));
  SteppedEngine alone(config);
  const std::string known = pair.prefill_params(random_prompt(1, 20));
  const AddRequest request = request_of(random_prompt(2, 60));
  const std::string name = "xfer-once-0123456789";
  const auto prefill = [&](const Tokens& prompt) {
    AddRequest asked = greedy_request(prompt, 1);
    asked.transfer_params = keep(name);
    return asked;
  };
  const Tokens other = random_prompt(3, 60);
  const RequestId first = pair.prefilling->add(prefill(request.prompt));
  const RequestId meanwhile = pair.prefilling->add(prefill(other));
  run_awaiting(*pair.prefilling);
  CHECK_FALSE(pair.prefilling->outputs[first].transfer_params.empty());
  CHECK(pair.prefilling->outputs[meanwhile].transfer_params.empty());
  CHECK(pair.prefilling->finish(prefill(other)).transfer_params.empty());
  CHECK_FALSE(pair.prefilling->finish(prefill(request.prompt)).transfer_params.empty());
  CHECK(pair.decode(request, with_name(known, name)).token_ids == alone.finish(request).token_ids);
  CHECK(pair.losses() == 0);
  for (int i = 0; i < 2000 && pair.sent().kept_bytes > 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  CHECK_FALSE(pair.prefilling->finish(prefill(other)).transfer_params.empty());
}

TEST_CASE("over Mooncake a prefill that is refused before it is begun is told at once",
          "[mooncake]") {
  const EngineConfig config = kv_config(golden_models().front());
  KvPair pair(prefill_of(config), decode_of(config));
  const std::string known = pair.prefill_params(random_prompt(1, 20));
  const AddRequest request = request_of(random_prompt(2, 60));
  for (const bool by_http : {false, true}) {
    const std::string name = fmt::format("xfer-refused-0123456789-{}", by_http);
    AddRequest decode = request;
    decode.transfer_params = with_name(known, name);
    const RequestId id = pair.decoding->add(decode);
    step_until_asked(pair);
    AddRequest prefill = greedy_request(request.prompt, 1);
    prefill.transfer_params = keep(name);
    if (by_http) {
      pair.prefilling->core.take_notice(PushNotice{name, {}});
    } else {
      prefill.sampling.top_p = 2;
      CHECK(pair.prefilling->finish(prefill).finish_reason == FinishReason::error);
    }
    run_awaiting(*pair.decoding);
    CHECK(pair.decoding->outputs[id].token_ids.size() == 24);
  }
  CHECK(pair.losses(KvLossReason::refused) == 2);

  // What another request has begun by that name is not lost by it.
  const std::string name = "xfer-begun-0123456789";
  AddRequest prefill = greedy_request(request.prompt, 1);
  prefill.transfer_params = keep(name);
  const RequestId begun = pair.prefilling->add(prefill);
  pair.prefilling->core.take_notice(PushNotice{name, {}});
  run_awaiting(*pair.prefilling);
  CHECK_FALSE(pair.prefilling->outputs[begun].transfer_params.empty());
}

TEST_CASE("over Mooncake a cancelled request and a lost server leave nothing behind",
          "[mooncake]") {
  const EngineConfig config = kv_config(golden_models().front());
  KvPair pair(prefill_of(config), decode_of(config));
  SteppedEngine alone(config);
  const std::string known = pair.prefill_params(random_prompt(1, 20));
  AddRequest waits = request_of(random_prompt(2, 100));
  waits.transfer_params = with_name(known, "xfer-never-0123456789");
  const RequestId cancelled = pair.decoding->add(waits);
  step_until_asked(pair);
  pair.decoding->core.abort(cancelled);
  run_awaiting(*pair.decoding);
  CHECK(pair.received().arriving_bytes == 0);

  const AddRequest request = request_of(random_prompt(3, 100));
  AddRequest lost = request;
  lost.transfer_params = with_name(known, "xfer-never-9876543210");
  const RequestId id = pair.decoding->add(lost);
  step_until_asked(pair);
  pair.prefilling.reset();
  run_awaiting(*pair.decoding);
  CHECK(pair.decoding->outputs[id].token_ids == alone.finish(request).token_ids);
  CHECK(pair.losses(KvLossReason::peer_lost) == 1);
  CHECK(pair.received().arriving_bytes == 0);
}

TEST_CASE("over Mooncake what finds no room is computed", "[mooncake]") {
  const EngineConfig config = kv_config(golden_models().front());
  EngineConfig small = decode_of(config);
  small.kv_transfer.buffer_bytes = 4096;
  KvPair pair(prefill_of(config), small);
  SteppedEngine alone(config);
  const AddRequest request = request_of(random_prompt(3, 100));
  CHECK(pair.ask(request).token_ids == alone.finish(request).token_ids);
  CHECK(pair.losses(KvLossReason::no_room) == 1);
  for (int i = 0; i < 2000 && pair.sent().kept_bytes > 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  CHECK(pair.sent().kept_bytes == 0);  // it was told that nobody wants it
}

}  // namespace quire::test
