// Two engines and a line between them that fails at every step of the protocol, for many requests
// at a time: each answer is that of one engine, or says why not, and every block and slot comes
// back. QUIRE_FAULT_RUNS says how many requests (128), QUIRE_FAULT_SEED with which the first begins
// (1).

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <random>

#include "tests/engine/core/kv_pair.h"
#include "tests/engine/kv_transfer/faulty_relay.h"
#include "tests/engine/kv_transfer/mooncake/relay.h"
#include "tests/support/golden_folders.h"

namespace quire::test {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kBatch = 16;  // requests at a time: so many silences pass side by side

std::uint64_t number_of(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

EngineConfig half_of(const std::filesystem::path& model, int block_size, KvPlane plane) {
  EngineConfig config = kv_config(model, block_size);
  config.kv_transfer.plane = plane;
  config.kv_transfer.buffer_bytes = std::int64_t{16} << 20;
  config.kv_transfer.lease_seconds = 3;
  return config;
}

EngineConfig decoding_half(const std::filesystem::path& model, KvPlane plane,
                           KvLoadFailurePolicy policy) {
  EngineConfig config = half_of(model, 32, plane);
  if (plane == KvPlane::mooncake) config.kv_transfer.listen = "127.0.0.1:0";
  config.kv_transfer.load_failure_policy = policy;
  return config;
}

struct Case {
  Case(std::uint64_t seed, KvPlane plane) {
    std::mt19937_64 random(seed);
    const auto length = static_cast<std::size_t>(2 + random() % 150);
    std::vector<TokenId> prompt(length);
    for (TokenId& token : prompt) token = static_cast<TokenId>(3 + random() % 380);
    request = greedy_request(std::move(prompt), 8);
    request.sampling.ignore_eos = true;
    plan.fault = static_cast<LineFault>(random() % kNumLineFaults);
    plan.towards_reader = random() % 3 != 0;
    plan.frame = static_cast<int>(random() % (plan.towards_reader ? 8 : 3));
    plan.every_connection = random() % 2 == 0;
    plan.seed = random();
    if (random() % 8 == 0) abort_at = static_cast<int>(random() % 40);
    tells_wrong = random() % 16 == 0;
    pushed = plane == KvPlane::local && random() % 2 == 0;
    mooncake = any_mooncake_fault(seed, 4);
    // Of a message that is lost on a line that is not, nobody hears before the prefill's time is
    // over.
    LineFault& fault = mooncake.plan.fault;
    if (mooncake.leg == MooncakeLeg::asks && (fault == LineFault::drop || fault == LineFault::swap))
      fault = LineFault::cut;
    name = "the request of seed " + std::to_string(seed);
  }

  AddRequest request;
  FaultPlan plan;
  MooncakeFault mooncake;
  std::optional<int> abort_at = {};  // a step
  bool tells_wrong = false;          // the params are another request's
  bool pushed = false;               // both engines are asked at once
  std::string name = {};
  std::vector<TokenId> expected = {};
  std::string params = {};
  std::unique_ptr<FaultyRelay> relay = {};
  std::unique_ptr<MooncakeRelay> mooncake_relay = {};
  RequestId id = {};
};

// The answer's params with the port of a relay instead of the engine's.
template <class MakeRelay>
std::string through(const std::string& params, std::string_view before, char behind,
                    MakeRelay make_relay) {
  const std::size_t at = params.find(before);
  if (at == std::string::npos) return params;  // nothing was kept
  const std::size_t first = at + before.size(), end = params.find(behind, first);
  const auto port = static_cast<std::uint16_t>(std::stoi(params.substr(first, end - first)));
  return params.substr(0, first) + std::to_string(make_relay(port)) + params.substr(end);
}

void lead_through_relay(Case& one) {
  one.params = through(one.params, "\"remote_port\":", ',', [&](std::uint16_t port) {
    one.relay = std::make_unique<FaultyRelay>(port, one.plan);
    return one.relay->port();
  });
  one.params = through(one.params, "http://127.0.0.1:", '"', [&](std::uint16_t port) {
    one.mooncake_relay = std::make_unique<MooncakeRelay>(port, one.mooncake);
    return one.mooncake_relay->port();
  });
}

class Engines {
 public:
  Engines(const std::filesystem::path& model, KvPlane plane, KvLoadFailurePolicy policy)
      : plane_(plane),
        policy_(policy),
        pair_(half_of(model, 16, plane), decoding_half(model, plane, policy)),
        alone_(kv_config(model, 32)) {}

  void run(std::uint64_t first_seed) {
    std::vector<Case> cases;
    for (std::uint64_t i = 0; i < kBatch; ++i) cases.emplace_back(first_seed + i, plane_);
    for (Case& one : cases) {
      one.expected = alone_.finish(one.request).token_ids;
      one.params = one.pushed ? KvPair::fetch_pushed(one.name, port_)
                              : pair_.prefill_params(one.request.prompt);
      lead_through_relay(one);
    }
    for (std::size_t i = 1; i < cases.size(); ++i)
      if (cases[i].tells_wrong) cases[i].params = cases[i - 1].params;
    // Now and then whoever prefilled is gone, or another has its place.
    if (first_seed / kBatch % 5 == 4) replace_prefilling();
    decode(cases);
    for (const Case& one : cases) check(one);
    check_blocks();
  }

  void check_all_came_back() {
    for (int i = 0; i < 10'000 && pair_.sent().kept_bytes > 0;
         ++i)  // what was lost on the way ends
      std::this_thread::sleep_for(1ms);
    CHECK(pair_.sent().kept_bytes == 0);
    check_blocks();
  }

 private:
  void replace_prefilling() {
    pair_.prefilling = std::make_unique<SteppedEngine>(pair_.prefill_config);
    port_ = port();
  }
  // Pushes are computed while the other side waits for them.
  void begin_pushes(const std::vector<Case>& cases) {
    for (const Case& one : cases) {
      if (!one.pushed) continue;
      AddRequest request = greedy_request(one.request.prompt, 1);
      request.transfer_params = KvPair::keep_pushed(one.name);
      pair_.prefilling->add(std::move(request));
    }
  }

  void decode(std::vector<Case>& cases) {
    SteppedEngine& engine = *pair_.decoding;
    begin_pushes(cases);
    for (Case& one : cases) {
      AddRequest request = one.request;
      request.transfer_params = one.params;
      one.id = engine.add(std::move(request));
    }
    for (int step = 0; engine.core.has_work(); ++step) {
      for (const Case& one : cases)
        if (one.abort_at == step) engine.core.abort(one.id);
      engine.step();
      if (pair_.prefilling->core.has_work()) pair_.prefilling->step();
      if (engine.core.is_idle()) std::this_thread::sleep_for(1ms);
    }
    pair_.prefilling->run();
  }

  void check(const Case& one) {
    const RequestOutput& output = pair_.decoding->outputs[one.id];
    const FaultPlan& plan = plane_ == KvPlane::local ? one.plan : one.mooncake.plan;
    INFO("request " << one.id.value << ", fault " << static_cast<int>(plan.fault) << ", frame "
                    << plan.frame << ": " << (output.error ? output.error->detail : ""));
    if (one.abort_at) {
      CHECK(
          std::equal(output.token_ids.begin(), output.token_ids.end(), one.expected.begin(),
                     one.expected.begin() + static_cast<std::ptrdiff_t>(output.token_ids.size())));
    } else if (output.finish_reason == FinishReason::error) {
      CHECK(policy_ == KvLoadFailurePolicy::fail);
      CHECK(output.token_ids.empty());
    } else {
      CHECK(output.token_ids == one.expected);
    }
  }

  void check_blocks() {
    CHECK(pair_.received().arriving_bytes == 0);
    for (const auto* engine : {pair_.prefilling.get(), pair_.decoding.get()}) {
      const EngineStats stats = engine->core.stats();
      CHECK(stats.num_free_blocks == stats.num_blocks);
      CHECK(stats.late_allocations == 0);
    }
  }

  int port() { return plane_ == KvPlane::local ? pair_.prefill_port() : 0; }

  const KvPlane plane_;
  const KvLoadFailurePolicy policy_;
  KvPair pair_;
  SteppedEngine alone_;
  int port_ = port();
};

void strike(const std::vector<std::filesystem::path>& models, KvPlane plane, std::uint64_t runs) {
  const std::uint64_t first = number_of("QUIRE_FAULT_SEED", 1);
  const std::uint64_t batches = (runs + kBatch - 1) / kBatch;
  const std::uint64_t num_models =
      std::min<std::uint64_t>(models.size(), std::max<std::uint64_t>(batches / 4, 2));
  for (std::uint64_t m = 0; m < num_models; ++m) {
    const auto& model = models[m * models.size() / num_models];
    const auto policy = m % 2 == 0 ? KvLoadFailurePolicy::recompute : KvLoadFailurePolicy::fail;
    INFO(model);
    Engines engines(model, plane, policy);
    for (std::uint64_t batch = m; batch < batches; batch += num_models) {
      const std::uint64_t seed = first + batch * kBatch;
      INFO("seed " << seed);
      engines.run(seed);
    }
    engines.check_all_came_back();
  }
}

// Those that the plane carries.
std::vector<std::filesystem::path> mooncake_models() {
  std::vector<std::filesystem::path> models;
  for (const auto& model : golden_models()) {
    try {
      const Engines engines(model, KvPlane::mooncake, KvLoadFailurePolicy::recompute);
      models.push_back(model);
    } catch (const Failure& failure) {
      CHECK(failure.error().field == "KvTransferConfig::plane");
    }
  }
  return models;
}

}  // namespace

TEST_CASE("whatever the line between two engines does, answers are right or say why",
          "[kv_transfer][faults]") {
  strike(golden_models(), KvPlane::local, number_of("QUIRE_FAULT_RUNS", 128));
}

TEST_CASE("whatever the lines between two engines over Mooncake do, answers are right or say why",
          "[mooncake][faults]") {
  strike(mooncake_models(), KvPlane::mooncake, number_of("QUIRE_FAULT_RUNS", 64));
}

}  // namespace quire::test
