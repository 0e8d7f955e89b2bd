// What one engine prefills another decodes with a draft model: the tokens of one engine that does
// both, and drafts that hold as often, because the draft's keys and values travel too.

#include <catch2/catch.hpp>
#include <cstdlib>

#include "tests/engine/core/kv_pair.h"

namespace quire::test {
namespace {

namespace fs = std::filesystem;

struct Pair {
  const char* name;
  DraftMethod method;
  bool has_states = false;
};

constexpr Pair kPairs[] = {{"eagle-llama", DraftMethod::eagle},
                           {"eagle3-llama-norms", DraftMethod::eagle3},
                           {"mtp-deepseek-v3", DraftMethod::mtp},
                           {"mtp-qwen3-5", DraftMethod::mtp, true},
                           {"mtp-qwen3-next", DraftMethod::mtp, true}};

EngineConfig config_of(const Pair& pair, bool with_drafts, bool adapts = false) {
  const fs::path folder = fs::path("tests/data/golden/drafts") / pair.name;
  EngineConfig config = kv_config(folder / "target");
  if (!with_drafts) return config;
  config.speculative.adaptive = adapts;
  config.speculative.method = pair.method;
  config.speculative.num_speculative_tokens = 3;
  if (pair.method != DraftMethod::mtp) config.speculative.model = (folder / "draft").string();
  return config;
}

// No two begin alike: who adapts the number of drafts takes hits whole, and a hit's last row of the
// draft was computed behind another token.
std::vector<AddRequest> requests() {
  std::vector<AddRequest> requests;
  for (const int length : {2, 15, 16, 17, 33, 64, 97, 130, 200}) {
    std::vector<TokenId> prompt;
    for (int i = 0; i < length; ++i) prompt.push_back(3 + (length + i * (length % 3 + 1)) % 120);
    requests.push_back(greedy_request(std::move(prompt), 32));
    requests.back().sampling.ignore_eos = true;
  }
  return requests;
}

std::int64_t num_accepted(const EngineCore& core) {
  std::int64_t sum = 0;
  for (const auto& place : core.stats().draft_positions) sum += place.accepted;
  return sum;
}

// Where the prompt's last token is left to the decode side, the draft's row before it was computed
// behind another token than the prompt's.
void check_accepted(const Pair& pair, const KvPair& both, const SteppedEngine& alone) {
  const std::int64_t expected = num_accepted(alone.core);
  CHECK(expected > 0);
  if (!pair.has_states) CHECK(num_accepted(both.decoding->core) == expected);
}

}  // namespace

TEST_CASE("a draft model's keys and values travel with the target's", "[kv_transfer][drafts]") {
  for (const Pair& pair : kPairs) {
    INFO(pair.name);
    const EngineConfig config = config_of(pair, true);
    SteppedEngine alone(config);
    KvPair both(config, config);
    for (const AddRequest& request : requests()) {
      INFO("a prompt of " << request.prompt.size() << " tokens");
      const auto expected = alone.finish(request).token_ids;
      CHECK(both.ask(request).token_ids == expected);
    }
    CHECK(both.losses() == 0);
    check_accepted(pair, both, alone);
  }
}

TEST_CASE("who adapts the number of drafts hands over a draft's prompt too",
          "[kv_transfer][drafts]") {
  for (const Pair& pair : kPairs) {
    INFO(pair.name);
    SteppedEngine alone(config_of(pair, true));
    KvPair both(config_of(pair, true, true), config_of(pair, true));
    for (const AddRequest& request : requests()) {
      CHECK(both.ask(request).token_ids == alone.finish(request).token_ids);
    }
    check_accepted(pair, both, alone);
  }
}

TEST_CASE("a draft model's keys and values travel over NIXL", "[nixl][drafts]") {
  const char* library = std::getenv("QUIRE_NIXL_LIBRARY");
  if (library == nullptr) {
    WARN("skipped: QUIRE_NIXL_LIBRARY does not name libnixl_capi.so");
    return;
  }
  const auto over_nixl = [&](EngineConfig config) {
    config.kv_transfer.plane = KvPlane::nixl;
    config.kv_transfer.nixl.library = library;
    return config;
  };
  for (const Pair& pair : kPairs) {
    INFO(pair.name);
    const EngineConfig config = config_of(pair, true);
    SteppedEngine alone(config);
    KvPair both(over_nixl(config), over_nixl(config));
    for (const AddRequest& request : requests()) {
      INFO("a prompt of " << request.prompt.size() << " tokens");
      const auto expected = alone.finish(request).token_ids;
      CHECK(both.ask(request).token_ids == expected);
    }
    CHECK(both.losses() == 0);
    check_accepted(pair, both, alone);
    // Without the draft model on one side: by what is hashed, or field by field.
    for (const bool compares : {true, false}) {
      EngineConfig without = over_nixl(config_of(pair, false));
      without.kv_transfer.nixl.compare_hash = compares;
      KvPair mixed(over_nixl(config), without);
      for (const AddRequest& request : requests())
        CHECK(mixed.ask(request).token_ids == alone.finish(request).token_ids);
      CHECK(mixed.losses(KvLossReason::incompatible) > 0);
    }
  }
}

TEST_CASE(
    "a draft model's keys and values travel over NIXL's writes and over Mooncake, states beside",
    "[nixl][push][mooncake][drafts]") {
  const char* library = std::getenv("QUIRE_NIXL_LIBRARY");
  for (const KvPlane plane : {KvPlane::mooncake, KvPlane::nixl}) {
    if (plane == KvPlane::nixl && library == nullptr) {
      WARN("NIXL skipped: QUIRE_NIXL_LIBRARY does not name libnixl_capi.so");
      continue;
    }
    const auto over = [&](EngineConfig config) {
      config.kv_transfer.plane = plane;
      config.kv_transfer.listen = "127.0.0.1:0";
      if (plane == KvPlane::mooncake) return config;
      config.kv_transfer.nixl.library = library;
      config.kv_transfer.nixl.pushes = true;
      config.kv_transfer.peers.push_back({"127.0.0.1"});
      return config;
    };
    for (const Pair& pair : kPairs) {
      INFO(pair.name << " over " << (plane == KvPlane::nixl ? "NIXL" : "Mooncake"));
      const EngineConfig config = config_of(pair, true);
      SteppedEngine alone(config);
      KvPair both(over(config), over(config));
      for (const AddRequest& request : requests()) {
        INFO("a prompt of " << request.prompt.size() << " tokens");
        CHECK(both.ask(request).token_ids == alone.finish(request).token_ids);
      }
      CHECK(both.losses() == 0);
      check_accepted(pair, both, alone);
      KvPair mixed(over(config), over(config_of(pair, false)));
      for (const AddRequest& request : requests())
        CHECK(mixed.ask(request).token_ids == alone.finish(request).token_ids);
      CHECK(mixed.losses(KvLossReason::incompatible) > 0);
    }
  }
}

TEST_CASE("one side without the draft model computes the prompt itself", "[kv_transfer][drafts]") {
  const Pair pair = kPairs[0];
  SteppedEngine alone(config_of(pair, false));
  for (const bool prefill_drafts : {false, true}) {
    KvPair both(config_of(pair, prefill_drafts), config_of(pair, !prefill_drafts));
    for (const AddRequest& request : requests())
      CHECK(both.ask(request).token_ids == alone.finish(request).token_ids);
    CHECK(both.losses(KvLossReason::incompatible) > 0);
  }
}

}  // namespace quire::test
