// Beside drafts the next step is planned and queued while the device drafts, and where nobody needs
// to know before the host has read how many held: the host waits for what a step drew, and for
// drafts only where somebody reads them. On the emulated CUDA backend.

#include <catch2/catch.hpp>
#include <random>

#include "tests/engine/core/emulated_backend.h"
#include "tests/engine/core/stepped_engine.h"
#include "tests/support/forwarding_device.h"

namespace quire::test {
namespace {

using Tokens = std::vector<TokenId>;

// Counts how often the host waits.
class CountingDevice : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;
  std::unique_ptr<Event> create_event() override {
    return std::make_unique<Counted>(ForwardingDevice::create_event(), num_waits);
  }
  void wait(StreamRef stream, Event& event) override {
    ForwardingDevice::wait(stream, *dynamic_cast<Counted&>(event).event);
  }
  void synchronize(StreamRef stream) override {
    ++num_waits;
    ForwardingDevice::synchronize(stream);
  }
  std::int64_t num_waits = 0;

 private:
  struct Counted : Event {
    Counted(std::unique_ptr<Event> own, std::int64_t& count) : event(std::move(own)), num(count) {}
    void record(StreamRef stream) override { event->record(stream); }
    bool ready() const override { return event->ready(); }
    void wait() override {
      ++num;
      event->wait();
    }
    std::unique_ptr<Event> event;
    std::int64_t& num;
  };
};

struct Pair {
  const char* name;
  DraftMethod method;
};

EngineConfig config_of(const Pair& pair, bool drafts) {
  const std::string folder = std::string("tests/data/golden/drafts/") + pair.name;
  EngineConfig config = tiny_config();
  config.device = DeviceKind::cuda;
  config.cpu_threads = 0;
  config.model.path = folder + "/target";
  config.model.dtype = DType::f32;
  config.model.max_model_len = 128;
  config.cache.num_gpu_blocks_override = 65;
  config.scheduler.max_num_seqs = 5;
  config.scheduler.max_num_batched_tokens = 32;
  if (!drafts) return config;
  config.speculative = {.method = pair.method, .num_speculative_tokens = 3, .adaptive = false};
  if (pair.method != DraftMethod::mtp) config.speculative.model = folder + "/draft";
  return config;
}

AddRequest request_of(std::mt19937& random, int num_output) {
  Tokens prompt;
  const unsigned step = 1 + random() % 3;
  for (unsigned i = 0, n = 4 + random() % 40; i < n; ++i)
    prompt.push_back(static_cast<TokenId>(3 + i * step % 110));
  AddRequest request = greedy_request(std::move(prompt), num_output);
  request.sampling.ignore_eos = true;
  request.sampling.seed = random();
  if (random() % 2 == 0) request.sampling.temperature = 0.7f;
  return request;
}

struct Engine {
  explicit Engine(const EngineConfig& config)
      : stepped(config, [this](const EngineConfig& c) {
          EngineBackend backend = emulated_backend(c);
          auto counting = std::make_unique<CountingDevice>(std::move(backend.device));
          device = counting.get();
          backend.device = std::move(counting);
          return backend;
        }) {}
  CountingDevice* device = nullptr;
  SteppedEngine stepped;
};

}  // namespace

TEST_CASE("a step that verifies drafts is queued while the device makes them",
          "[engine][cuda][drafts]") {
  const Pair pair = GENERATE(Pair{"eagle3-llama", DraftMethod::eagle3},
                             Pair{"mtp-qwen3-5", DraftMethod::mtp});
  CAPTURE(pair.name);
  std::mt19937 random(3);
  const AddRequest request = request_of(random, 40);
  Engine engine(config_of(pair, true));
  const std::int64_t before = engine.device->num_waits;
  const auto output = engine.stepped.finish(request);
  const EngineStats stats = engine.stepped.core.stats();
  CHECK(stats.drafts > 5);
  CHECK(stats.accepted_draft_tokens > 0);
  // For what each step drew; never for what it drafted.
  CHECK(engine.device->num_waits - before <= static_cast<std::int64_t>(stats.steps));
  CHECK(Engine(config_of(pair, false)).stepped.finish(request).token_ids == output.token_ids);
}

// Steps have no room for everybody's drafts, so that some rows are left out and theirs are lost;
// pools are so small that requests lose their blocks; penalties read drafts, and keep steps apart
// while somebody has any.
TEST_CASE("drafts that the host does not know change no answer", "[engine][cuda][drafts]") {
  const Pair pair = GENERATE(Pair{"eagle3-llama", DraftMethod::eagle3},
                             Pair{"mtp-qwen3-5", DraftMethod::mtp});
  // Steps of a target with recurrent states are apart anyway.
  const bool has_penalties = pair.method == DraftMethod::mtp || GENERATE(false, true);
  const bool is_eager = GENERATE(true, false);
  CAPTURE(pair.name, is_eager, has_penalties);
  std::mt19937 random(5);
  std::vector<AddRequest> requests;
  for (int i = 0; i < 7; ++i) {
    requests.push_back(request_of(random, 9 + i));
    if (i % 3 == 1 && has_penalties) requests.back().sampling.presence_penalty = 0.5f;
    if (i % 4 == 2) requests.back().sampling.logit_bias = {{7, 2.f}};
  }
  // To the end of the context, behind which there are no slots.
  requests.push_back(request_of(random, 14));
  requests.back().prompt.resize(114, 9);
  const auto answers = [&](EngineConfig config) {
    config.graphs.enforce_eager = is_eager;
    if (!is_eager) config.graphs.capture_sizes = {2, 5};
    Engine engine(config);
    std::vector<Tokens> tokens;
    std::vector<RequestId> ids;
    for (const AddRequest& request : requests) ids.push_back(engine.stepped.add(request));
    int num_followed = 0;
    while (engine.stepped.core.has_work()) {
      engine.stepped.step();
      num_followed += engine.stepped.core.runner().num_in_flight() > 0;
    }
    for (const RequestId id : ids) tokens.push_back(engine.stepped.outputs[id].token_ids);
    if (config.speculative.method != DraftMethod::none) {
      CHECK(engine.stepped.core.stats().accepted_draft_tokens > 0);
      if (pair.method == DraftMethod::mtp) {
        CHECK(num_followed == 0);  // its target has recurrent states
      } else {
        CHECK(num_followed > 5);
      }
    }
    CHECK(engine.stepped.core.stats().num_free_blocks == engine.stepped.core.stats().num_blocks);
    return tokens;
  };
  const std::vector<Tokens> expected = answers(config_of(pair, false));
  EngineConfig config = config_of(pair, true);
  config.scheduler.max_num_batched_tokens = 13;
  CHECK(answers(config) == expected);
  const Engine roomy(config);
  config.cache.num_gpu_blocks_override =
      static_cast<int>(roomy.stepped.core.plan().kv.workers.front().needed_blocks) + 2;
  CHECK(answers(config) == expected);
}

// Nobody is drafted for while more than two run: then who drafts is there and holds nobody up, not
// beside recurrent states, nor requests with penalties. The last two are drafted for.
TEST_CASE("steps without drafts overlap as without a draft model", "[engine][cuda][drafts]") {
  const Pair pair = GENERATE(Pair{"eagle3-llama", DraftMethod::eagle3},
                             Pair{"mtp-qwen3-5", DraftMethod::mtp});
  CAPTURE(pair.name);
  std::mt19937 random(13);
  std::vector<AddRequest> requests;
  for (const int num_output : {8, 22, 23, 36, 36}) {
    requests.push_back(request_of(random, num_output));
    if (num_output == 22) requests.back().sampling.presence_penalty = 0.5f;
    if (num_output == 23) requests.back().sampling.min_tokens = 9;
  }
  struct Run {
    std::vector<Tokens> tokens;
    int num_followed = 0;  // while three or more run
    std::int64_t num_accepted = 0;
  };
  const auto run = [&](EngineConfig config) {
    config.graphs.enforce_eager = true;
    config.speculative.disable_by_batch_size = config.speculative.method == DraftMethod::none ? 0 : 2;
    Engine engine(config);
    Run run;
    std::vector<RequestId> ids;
    for (const AddRequest& request : requests) ids.push_back(engine.stepped.add(request));
    while (engine.stepped.core.has_work()) {
      engine.stepped.step();
      const bool many = engine.stepped.core.stats().num_running > 2;
      run.num_followed += many && engine.stepped.core.runner().num_in_flight() > 0;
    }
    for (const RequestId id : ids) run.tokens.push_back(engine.stepped.outputs[id].token_ids);
    run.num_accepted = engine.stepped.core.stats().accepted_draft_tokens;
    return run;
  };
  const Run plain = run(config_of(pair, false)), idle = run(config_of(pair, true));
  CHECK(idle.tokens == plain.tokens);
  CHECK(idle.num_accepted > 0);
  CHECK(plain.num_followed > 20);
  CHECK(idle.num_followed >= plain.num_followed - 2);
}

// Of a device that is as late as may be, as early, or at any time between: what is filled again
// before it has read it, or comes back in the place of what is not read yet, makes other drafts, of
// which no more hold than by chance, and other log-probabilities.
TEST_CASE("as many drafts hold as where the host waits for each step", "[engine][cuda][drafts]") {
  const Pair pair{"eagle3-llama", DraftMethod::eagle3};
  const bool is_eager = GENERATE(true, false);
  CAPTURE(is_eager);
  EngineConfig config = config_of(pair, true);
  config.graphs.enforce_eager = is_eager;
  if (!is_eager) config.graphs.capture_sizes = {2, 5};
  std::mt19937 random(21);
  std::vector<AddRequest> requests;
  for (int i = 0; i < 5; ++i) {
    requests.push_back(request_of(random, 30 - 2 * i));
    if (i % 2 == 0) requests.back().sampling.logprobs = 1 + i;
  }
  struct Steps {
    std::map<RequestId, std::vector<std::size_t>> counts;  // of tokens that each step brought
    std::map<RequestId, RequestOutput> outputs;
    int num_followed = 0;
  };
  const auto run = [&](bool overlaps) {
    config.scheduler.async_scheduling = overlaps;
    Engine engine(config);
    Steps steps;
    std::map<RequestId, std::size_t> known;
    for (std::size_t next = 0; next < requests.size() || engine.stepped.core.has_work();) {
      // One after the other: a prompt is taken in beside those who decode.
      if (next < requests.size()) engine.stepped.add(requests[next++]);
      engine.stepped.step();
      steps.num_followed += engine.stepped.core.runner().num_in_flight() > 0;
      for (const auto& [id, output] : engine.stepped.outputs) {
        const std::size_t count = output.token_ids.size() - known[id];
        if (count > 0) steps.counts[id].push_back(count);
        known[id] += count;
      }
    }
    steps.outputs = std::move(engine.stepped.outputs);
    return steps;
  };
  const Steps late = run(true), known = run(false);
  CHECK(late.num_followed > 10);
  CHECK(known.num_followed == 0);
  for (const auto& [id, counts] : known.counts) {
    // Near its end a request gets fewer drafts where it is not known how far it is.
    const auto whole = static_cast<std::ptrdiff_t>(counts.size()) - 4;
    REQUIRE(whole > 4);
    const auto& own = late.counts.at(id);
    REQUIRE(static_cast<std::ptrdiff_t>(own.size()) > whole);
    CHECK(std::vector(own.begin(), own.begin() + whole) ==
          std::vector(counts.begin(), counts.begin() + whole));
    const RequestOutput &output = late.outputs.at(id), &expected = known.outputs.at(id);
    CHECK(output.token_ids == expected.token_ids);
    REQUIRE(output.logprobs.size() == expected.logprobs.size());
    for (std::size_t i = 0; i < output.logprobs.size(); ++i) {
      const auto &position = output.logprobs[i], &other = expected.logprobs[i];
      CHECK(position.chosen.logprob == Approx(other.chosen.logprob).margin(1e-3));
      REQUIRE(position.top.size() == other.top.size());
      for (std::size_t k = 0; k < position.top.size(); ++k)
        CHECK(position.top[k].logprob == Approx(other.top[k].logprob).margin(1e-3));
    }
  }
}

// Seeds and positions decide, and in f32 both backends have the same shares but for rounding.
TEST_CASE("drawn drafts are kept and replaced as on the CPU", "[engine][cuda][drafts]") {
  const Pair pair =
      GENERATE(Pair{"eagle3-llama", DraftMethod::eagle3}, Pair{"mtp-qwen3-5", DraftMethod::mtp});
  CAPTURE(pair.name);
  std::mt19937 random(8);
  std::vector<AddRequest> requests;
  for (int i = 0; i < 4; ++i) {
    requests.push_back(request_of(random, 12));
    requests.back().sampling.temperature = i == 0 ? 0.f : 0.8f;
    if (i == 2) requests.back().sampling.top_k = 20;
    if (i == 3) requests.back().sampling.top_p = 0.9f, requests.back().sampling.logprobs = 2;
  }
  EngineConfig config = config_of(pair, true);
  config.speculative.draft_sampling = DraftSampling::probabilistic;
  const auto answers = [&](SteppedEngine& engine) {
    std::vector<Tokens> tokens;
    std::vector<RequestId> ids;
    for (const AddRequest& request : requests) ids.push_back(engine.add(request));
    engine.run();
    for (const RequestId id : ids) tokens.push_back(engine.outputs[id].token_ids);
    const EngineStats stats = engine.core.stats();
    CHECK(stats.accepted_draft_tokens > 0);
    CHECK(stats.draft_tokens > stats.accepted_draft_tokens);
    return tokens;
  };
  Engine device(config);
  config.device = DeviceKind::cpu;
  SteppedEngine host(config);
  CHECK(answers(device.stepped) == answers(host));
}

}  // namespace quire::test
