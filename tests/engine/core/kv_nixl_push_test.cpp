// One engine prefills and writes into another's blocks over NIXL's own library: QUIRE_NIXL_LIBRARY
// names libnixl_capi.so. Without it nothing of this runs.

#include <catch2/catch.hpp>
#include <cstdlib>
#include <random>

#include "tests/engine/core/kv_pair.h"
#include "tests/support/golden_folders.h"

namespace quire::test {
namespace {

using Tokens = std::vector<TokenId>;

AddRequest request_of(unsigned seed, int length) {
  std::mt19937 random(seed);
  Tokens prompt(static_cast<std::size_t>(length));
  for (TokenId& token : prompt) token = static_cast<TokenId>(3 + random() % 380);
  AddRequest request = greedy_request(std::move(prompt), 16);
  request.sampling.ignore_eos = true;
  return request;
}

EngineConfig pushing(EngineConfig config) {
  config.kv_transfer.plane = KvPlane::nixl;
  config.kv_transfer.nixl.library = std::getenv("QUIRE_NIXL_LIBRARY");
  config.kv_transfer.nixl.pushes = true;
  config.kv_transfer.listen = "127.0.0.1:0";
  return config;
}
EngineConfig prefills(EngineConfig config) {
  config = pushing(std::move(config));
  config.kv_transfer.peers.push_back({"127.0.0.1"});
  return config;
}

bool has_library() {
  const bool has = std::getenv("QUIRE_NIXL_LIBRARY") != nullptr;
  if (!has) WARN("skipped: QUIRE_NIXL_LIBRARY does not name libnixl_capi.so");
  return has;
}

void wait_until(const std::function<bool()>& is_so) {
  for (int i = 0; i < 5000 && !is_so(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  CHECK(is_so());
}

// Of another request the same, with a name that does not tell which.
std::string params_for(const std::string& known, const std::string& name) {
  std::string params = known;
  constexpr std::string_view kMember = "\"remote_request_id\":\"";
  const auto at = params.find(kMember) + kMember.size();
  params.replace(at, params.find('"', at) - at, name);
  constexpr std::string_view kTokens = "\"remote_num_tokens\":";
  const auto tokens = params.find(kTokens) + kTokens.size();
  params.replace(tokens, params.find(',', tokens) - tokens, "null");
  return params;
}

// Both at once, under the name that X-Request-Id would give both.
RequestOutput ask_both(KvPair& pair, const AddRequest& wanted, const std::string& params,
                       const std::string& name, bool decode_first) {
  AddRequest prefill = greedy_request(wanted.prompt, 1);
  prefill.transfer_params = kAskForKeeping;
  prefill.transfer_name = name;
  AddRequest decode = wanted;
  decode.transfer_params = params;
  decode.transfer_name = name;
  if (!decode_first) pair.prefilling->add(prefill);
  const RequestId id = pair.decoding->add(std::move(decode));
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(50);
  while (decode_first && std::chrono::steady_clock::now() < until) pair.decoding->step();
  if (decode_first) pair.prefilling->add(std::move(prefill));
  while (pair.decoding->core.has_work() || pair.prefilling->core.has_work()) {
    for (SteppedEngine* engine : {pair.decoding.get(), pair.prefilling.get()})
      if (engine->core.has_work()) engine->step();
    if (pair.decoding->core.is_idle() && pair.prefilling->core.is_idle())
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return pair.decoding->outputs[id];
}

void check_lengths(const EngineConfig& prefill, const EngineConfig& decode) {
  KvPair pair(prefills(prefill), pushing(decode));
  SteppedEngine alone(decode);
  int num_fetched = 0;
  for (const int length : {1, 2, 15, 16, 17, 33, 64, 97, 130, 200}) {
    const AddRequest request = request_of(static_cast<unsigned>(length), length);
    const std::string params = pair.prefill_params(request.prompt);
    num_fetched += params.empty() ? 0 : 1;
    INFO("prompt of " << length << " tokens: " << params);
    CHECK(pair.decode(request, params).token_ids == alone.finish(request).token_ids);
  }
  CHECK(num_fetched == 9);
  CHECK(pair.losses() == 0);
  CHECK(pair.received().received == num_fetched);
  wait_until([&] { return pair.sent().sent == num_fetched; });
}

}  // namespace

TEST_CASE("what one engine writes over NIXL another decodes, of every model", "[nixl][push]") {
  if (!has_library()) return;
  for (const auto& model : golden_models()) {
    INFO(model);
    check_lengths(kv_config(model), kv_config(model));
  }
}

TEST_CASE("over NIXL writes go between blocks of any sizes", "[nixl][push]") {
  if (!has_library()) return;
  for (const auto& model : golden_models())
    for (const auto& [prefill, decode, peer] : {std::tuple(16, 64, 32), std::tuple(64, 16, 16)}) {
      INFO(model << ", blocks of " << prefill << " to " << decode << " over " << peer);
      EngineConfig receives = kv_config(model, decode);
      EngineConfig sends = kv_config(model, prefill);
      receives.kv_transfer.peer_block_size = peer;
      sends.kv_transfer.peer_block_size = peer;
      KvPair pair(prefills(sends), pushing(receives));
      SteppedEngine alone(kv_config(model, decode));
      for (const int length : {17, 64, 130}) {
        const AddRequest request = request_of(static_cast<unsigned>(length), length);
        CHECK(pair.ask(request).token_ids == alone.finish(request).token_ids);
      }
      CHECK(pair.losses() == 0);
    }
}

TEST_CASE("a registration over NIXL may come before the prefill, or after it", "[nixl][push]") {
  if (!has_library()) return;
  const EngineConfig config = kv_config(golden_models().front());
  KvPair pair(prefills(config), pushing(config));
  SteppedEngine alone(config);
  const std::string known = pair.prefill_params({3, 4, 5});
  int number = 0;
  for (const bool decode_first : {true, false, true, false}) {
    const AddRequest request = request_of(static_cast<unsigned>(++number), 150);
    const std::string name = "chatcmpl-of-both-" + std::to_string(number);
    CHECK(ask_both(pair, request, params_for(known, "what a proxy says"), name, decode_first)
              .token_ids == alone.finish(request).token_ids);
  }
  CHECK(pair.losses() == 0);
  CHECK(pair.received().received == 4);
}

TEST_CASE("over NIXL only what is not here is written", "[nixl][push]") {
  if (!has_library()) return;
  const EngineConfig config = kv_config(golden_models().front());
  KvPair pair(prefills(config), pushing(config));
  SteppedEngine alone(config);
  const AddRequest first = request_of(7, 168);
  CHECK(pair.ask(first).token_ids == alone.finish(first).token_ids);
  const std::int64_t bytes_of_first = pair.received().received_bytes;
  AddRequest second = first;
  second.prompt.back() = 5;
  second.prompt[140] = 6;
  CHECK(pair.ask(second).token_ids == alone.finish(second).token_ids);
  CHECK(pair.received().received_bytes - bytes_of_first < bytes_of_first / 2);
  CHECK(pair.losses() == 0);
}

TEST_CASE("beside a state only those keys and values are written that are not here",
          "[nixl][push][states]") {
  if (!has_library()) return;
  EngineConfig config = kv_config("models/quire-tiny-hybrid");
  config.cache.mamba_cache_mode = StateCacheMode::align;
  KvPair pair(prefills(config), pushing(config));
  SteppedEngine alone(config);
  const auto bytes_of = [&](unsigned seed, TokenId last) {
    AddRequest request = request_of(seed, 248);
    request.prompt[245] = last;
    const std::int64_t before = pair.received().received_bytes;
    CHECK(pair.ask(request).token_ids == alone.finish(request).token_ids);
    return pair.received().received_bytes - before;
  };
  // A part of it was computed here, and the state kept where it ends.
  pair.decoding->finish(request_of(7, 248));
  const std::int64_t rest = bytes_of(7, 5), whole = bytes_of(8, 5);
  INFO(rest << " of " << whole << " bytes");
  CHECK(rest < whole);
  CHECK(rest > 0);
  CHECK(pair.losses() == 0);
  CHECK(pair.received().received == 2);
}

TEST_CASE("over NIXL nothing of another prompt is written", "[nixl][push]") {
  if (!has_library()) return;
  const EngineConfig config = kv_config(golden_models().front());
  KvPair pair(prefills(config), pushing(config));
  SteppedEngine alone(config);
  const std::string params = pair.prefill_params(request_of(1, 50).prompt);
  const AddRequest request = request_of(2, 50);
  CHECK(pair.decode(request, params).token_ids == alone.finish(request).token_ids);
  CHECK(pair.losses(KvLossReason::prompt) == 1);
}

TEST_CASE("over NIXL a prefill that is aborted is told to who registered for it", "[nixl][push]") {
  if (!has_library()) return;
  const EngineConfig config = kv_config(golden_models().front());
  KvPair pair(prefills(config), pushing(config));
  SteppedEngine alone(config);
  const std::string known = pair.prefill_params({3, 4, 5});
  for (const int steps : {0, 1}) {
    const AddRequest request = request_of(static_cast<unsigned>(20 + steps), 200);
    AddRequest prefill = greedy_request(request.prompt, 1);
    prefill.transfer_params = kAskForKeeping;
    prefill.transfer_name = "chatcmpl-aborted-" + std::to_string(steps);
    AddRequest decode = request;
    decode.transfer_params = params_for(known, "what a proxy says");
    decode.transfer_name = prefill.transfer_name;
    const RequestId begun = pair.prefilling->add(std::move(prefill));
    for (int i = 0; i < steps; ++i) pair.prefilling->step();
    pair.prefilling->core.abort(begun);
    pair.prefilling->run();
    const RequestId id = pair.decoding->add(std::move(decode));
    run_awaiting(*pair.decoding);
    CHECK(pair.decoding->outputs[id].token_ids == alone.finish(request).token_ids);
    CHECK(pair.losses(KvLossReason::refused) == steps + 1);
  }
}

TEST_CASE("a request that is cancelled while it is waited for leaves nothing", "[nixl][push]") {
  if (!has_library()) return;
  const EngineConfig config = kv_config(golden_models().front());
  KvPair pair(prefills(config), pushing(config));
  SteppedEngine alone(config);
  const std::string known = pair.prefill_params({3, 4, 5});
  for (int i = 0; i < 8; ++i) {
    AddRequest decode = request_of(static_cast<unsigned>(i), 200);
    decode.transfer_params = params_for(known, "what a proxy says");
    decode.transfer_name = "chatcmpl-cancelled-" + std::to_string(i);
    const RequestId id = pair.decoding->add(std::move(decode));
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(i * 10);
    do {
      pair.decoding->step();
    } while (std::chrono::steady_clock::now() < until);
    pair.decoding->core.abort(id);
    run_awaiting(*pair.decoding);
  }
  const AddRequest request = request_of(99, 200);  // all blocks are back
  CHECK(pair.ask(request).token_ids == alone.finish(request).token_ids);
  CHECK(pair.received().received == 1);
}

TEST_CASE("over NIXL a server that is gone writes nothing, and the prompt is computed here",
          "[nixl][push]") {
  if (!has_library()) return;
  EngineConfig config = kv_config(golden_models().front());
  config.kv_transfer.lease_seconds = 6;  // a sign of life each second
  KvPair pair(prefills(config), pushing(config));
  SteppedEngine alone(kv_config(golden_models().front()));
  const AddRequest request = request_of(3, 90);
  CHECK(pair.ask(request).token_ids == alone.finish(request).token_ids);  // they know each other
  const AddRequest second = request_of(4, 90);
  const std::string params = pair.prefill_params(second.prompt);
  pair.prefilling.reset();
  CHECK(pair.decode(second, params).token_ids == alone.finish(second).token_ids);
  CHECK(pair.losses(KvLossReason::peer_lost) == 1);
}

TEST_CASE("what nobody registers for ends with its lease", "[nixl][push]") {
  if (!has_library()) return;
  EngineConfig config = kv_config(golden_models().front());
  config.kv_transfer.lease_seconds = 1;
  KvPair pair(prefills(config), pushing(config));
  const std::int64_t before = pair.sent().kept_bytes;
  const std::string params = pair.prefill_params(request_of(6, 90).prompt);
  CHECK(pair.sent().kept_bytes > before);
  wait_until([&] { return pair.sent().kept_bytes == before; });
  CHECK(pair.sent().expired == 1);
}

TEST_CASE("settings of NIXL's push that do not fit are refused by name", "[nixl][push]") {
  if (!has_library()) return;
  const EngineConfig config = kv_config("models/quire-tiny");
  const auto field_of = [&](auto change) {
    EngineConfig changed = pushing(config);
    change(changed.kv_transfer);
    try {
      const KvPair pair(prefills(config), changed);
    } catch (const Failure& failure) {
      return failure.error().field;
    }
    return std::string();
  };
  CHECK(field_of([](KvTransferConfig&) {}).empty());
  CHECK(field_of([](KvTransferConfig& c) { c.nixl.profile = "vllm-0.25.1"; }) ==
        "NixlConfig::profile");
  CHECK(field_of([](KvTransferConfig& c) { c.buffer_bytes = 4096; }) ==
        "KvTransferConfig::buffer_bytes");
}

TEST_CASE("params that do not fit a server that pushes are refused by name", "[nixl][push]") {
  if (!has_library()) return;
  const EngineConfig config = kv_config("models/quire-tiny");
  KvPair pair(prefills(config), pushing(config));
  const std::string good = pair.prefill_params({3, 4, 5});
  const auto is_refused = [&](SteppedEngine& engine, const std::string& params) {
    AddRequest request = greedy_request({3, 4, 5}, 1);
    request.transfer_params = params;
    const RequestId id = engine.add(std::move(request));
    run_awaiting(engine);
    return engine.outputs[id].error.has_value();
  };
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string params = good;
    const auto at = params.find(from);
    REQUIRE(at != params.npos);
    return params.replace(at, from.size(), to);
  };
  CHECK(!is_refused(*pair.decoding, good));
  CHECK(is_refused(*pair.decoding, with(R"("transfer_mode":"push")", R"("transfer_mode":"pull")")));
  CHECK(is_refused(*pair.decoding, with("127.0.0.1", "127.0.0.2")));
  CHECK(is_refused(*pair.decoding, with(R"("pp_size":1)", R"("pp_size":2)")));
  CHECK(is_refused(*pair.decoding, with("remote_engine_id", "another")));
  CHECK(is_refused(*pair.decoding, with("remote_request_id", "another")));
  CHECK(is_refused(*pair.prefilling, good));  // which only prefills
}

TEST_CASE("fp8 caches and draft models are pushed over NIXL too", "[nixl][push]") {
  if (!has_library()) return;
  for (const char* model : {"models/quire-tiny", "models/quire-tiny-hybrid"}) {
    EngineConfig fp8 = kv_config(model);
    fp8.cache.cache_dtype = DType::fp8_e4m3;
    check_lengths(fp8, fp8);
  }
  EngineConfig drafts = kv_config("tests/data/golden/drafts/mtp-deepseek-v3/target");
  drafts.speculative.method = DraftMethod::mtp;
  drafts.speculative.num_speculative_tokens = 3;
  drafts.speculative.adaptive = false;
  KvPair pair(prefills(drafts), pushing(drafts));
  SteppedEngine alone(drafts);
  for (const int length : {16, 33, 97, 200}) {
    AddRequest request = request_of(1, length);
    for (TokenId& token : request.prompt) token %= 120;
    CHECK(pair.ask(request).token_ids == alone.finish(request).token_ids);
  }
  CHECK(pair.losses() == 0);
  CHECK(pair.received().received == 4);
}

}  // namespace quire::test
