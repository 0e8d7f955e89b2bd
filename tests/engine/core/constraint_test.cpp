// What a request may draw depends on its latest tokens: the seam of engine/structured through a
// whole engine, with steps that overlap and without.

#include <catch2/catch.hpp>
#include <future>

#include "tests/engine/core/stepped_engine.h"
#include "tests/support/fake_constraint.h"

namespace quire::test {
namespace {

BackendFactory with_constraints(BackendFactory factory, CompileConstraint compile = compile_fake) {
  return [factory = std::move(factory), compile = std::move(compile)](const EngineConfig& config) {
    EngineBackend backend = factory(config);
    backend.compile_constraint = compile;
    return backend;
  };
}

AddRequest constrained(const std::string& text, int max_tokens = 20) {
  AddRequest request = greedy_request({10, 11, 12, 13}, max_tokens);
  request.sampling.constraint = ConstraintSpec{.kind = ConstraintKind::choice, .text = text};
  return request;
}

// Compiling takes time of its own: until it is done, steps are empty.
void run_to_end(SteppedEngine& engine) {
  for (int i = 0; engine.core.has_work(); ++i) {
    REQUIRE(i < 100'000);
    if (engine.core.is_idle()) std::this_thread::sleep_for(std::chrono::microseconds(100));
    engine.step();
  }
}

TEST_CASE("a constraint's output is one of its sequences, whatever else runs", "[engine][core]") {
  const bool overlap = GENERATE(false, true);
  SteppedEngine engine(tiny_config(), with_constraints(overlap ? pretend_backend : cpu_backend));
  const RequestId plain = engine.add(greedy_request({10, 11, 12, 13}, 20));
  const RequestId one = engine.add(constrained("500 501 502 503"));
  const RequestId two = engine.add(constrained("7|500 501"));
  const RequestId cut = engine.add(constrained("500 501 502 503", 2));
  AddRequest patient = constrained("500 501");
  patient.sampling.min_tokens = 9;
  patient.sampling.max_tokens = 9;
  const RequestId complete = engine.add(std::move(patient));
  run_to_end(engine);
  CHECK(engine.outputs[one].token_ids == std::vector<TokenId>{500, 501, 502, 503, 1523});
  CHECK(engine.outputs[one].finish_reason == FinishReason::stop);
  const auto& chosen = engine.outputs[two].token_ids;
  CHECK(
      (chosen == std::vector<TokenId>{7, 1523} || chosen == std::vector<TokenId>{500, 501, 1523}));
  CHECK(engine.outputs[cut].token_ids == std::vector<TokenId>{500, 501});
  CHECK(engine.outputs[cut].finish_reason == FinishReason::length);
  CHECK(engine.outputs[complete].token_ids == std::vector<TokenId>{500, 501, 1523});
  SteppedEngine alone;
  CHECK(engine.outputs[plain].token_ids ==
        alone.finish(greedy_request({10, 11, 12, 13}, 20)).token_ids);
}

TEST_CASE("a specification that does not compile is the request's error", "[engine][core]") {
  SteppedEngine engine(tiny_config(), with_constraints(cpu_backend));
  const RequestId wrong = engine.add(constrained("wrong"));
  const RequestId right = engine.add(constrained("5 6"));
  run_to_end(engine);
  REQUIRE(engine.outputs[wrong].error);
  CHECK(engine.outputs[wrong].error->code == ErrorCode::invalid_argument);
  CHECK(engine.outputs[wrong].error->field == "/structured_outputs");
  CHECK(engine.outputs[right].token_ids == std::vector<TokenId>{5, 6, 1523});

  SteppedEngine without;
  const RequestId refused = without.add(constrained("5 6"));
  without.run();
  REQUIRE(without.outputs[refused].error);
  CHECK(without.outputs[refused].error->code == ErrorCode::unsupported);
}

TEST_CASE("where nothing may be drawn, that request ends alone", "[engine][core]") {
  const bool overlap = GENERATE(false, true);
  SteppedEngine engine(tiny_config(), with_constraints(overlap ? pretend_backend : cpu_backend));
  AddRequest stuck = constrained("500 501 502");
  stuck.sampling.bad_words = {{{502}}};
  const RequestId lost = engine.add(std::move(stuck));
  AddRequest apart = constrained("500 501");
  apart.sampling.allowed_tokens = {7, 8};
  const RequestId contradictory = engine.add(std::move(apart));
  const RequestId fine = engine.add(constrained("500 501 502"));
  run_to_end(engine);
  CHECK(engine.outputs[lost].finish_reason == FinishReason::error);
  CHECK(engine.outputs[lost].token_ids == std::vector<TokenId>{500, 501});
  CHECK(engine.outputs[lost].error->field == "bad_words");
  REQUIRE(engine.outputs[contradictory].error);
  CHECK(engine.outputs[contradictory].error->code == ErrorCode::invalid_argument);
  CHECK(engine.outputs[contradictory].error->field == "allowed_token_ids");
  CHECK(engine.outputs[fine].token_ids == std::vector<TokenId>{500, 501, 502, 1523});
  CHECK(engine.core.stats().num_free_blocks == engine.core.stats().num_blocks);
}

// A mask that takes as long as the gate is shut, from the second token on.
class LateConstraint final : public TokenConstraint {
 public:
  LateConstraint(std::shared_future<void> gate, std::unique_ptr<TokenConstraint> inner)
      : gate_(std::move(gate)), inner_(std::move(inner)) {}
  void limit(const Slice& slice) override { slice_ = slice; }
  void fill(std::span<std::uint32_t> mask) const override {
    while (num_taken_ > 1 && gate_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
      if (slice_.stop.stop_requested()) throw Failure(ErrorCode::internal, "stopped");
      if (!slice_.waits || slice_.work != std::chrono::nanoseconds::max()) throw OutOfTime();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    inner_->fill(mask);
  }
  bool accept(TokenId token) override {
    num_taken_ += inner_->accept(token) ? 1 : 0;
    return true;
  }
  void rollback(int num_tokens) override {
    inner_->rollback(num_tokens);
    num_taken_ -= num_tokens;
  }
  bool is_complete() const override { return inner_->is_complete(); }

 private:
  const std::shared_future<void> gate_;
  const std::unique_ptr<TokenConstraint> inner_;
  Slice slice_;
  int num_taken_ = 0;
};

class LateCompiled final : public CompiledConstraint {
 public:
  LateCompiled(std::shared_future<void> gate, std::shared_ptr<const CompiledConstraint> inner)
      : gate_(std::move(gate)), inner_(std::move(inner)) {}
  std::unique_ptr<TokenConstraint> start(std::span<const TokenId> end_tokens) const override {
    return std::make_unique<LateConstraint>(gate_, inner_->start(end_tokens));
  }

 private:
  const std::shared_future<void> gate_;
  const std::shared_ptr<const CompiledConstraint> inner_;
};

TEST_CASE("a request whose mask takes long sits steps out, and nobody else does", "[engine][core]") {
  const bool overlap = GENERATE(false, true);
  std::promise<void> may_go;
  const std::shared_future<void> gate = may_go.get_future().share();
  const CompileConstraint late = [&](const ConstraintSpec& spec,
                                     const Slice& slice) -> std::shared_ptr<const CompiledConstraint> {
    auto made = compile_fake(spec, slice);
    if (!spec.text.starts_with("600")) return made;
    return std::make_shared<LateCompiled>(gate, std::move(made));
  };
  SteppedEngine engine(tiny_config(),
                       with_constraints(overlap ? pretend_backend : cpu_backend, late));
  AddRequest penalized = constrained("600 601 602 603 604 605|600 601 602 603 606 607");
  penalized.sampling.repetition_penalty = 1.4f;
  penalized.sampling.logprobs = 1;
  std::vector<RequestId> held = {engine.add(std::move(penalized)), engine.add(constrained("600 601 602"))};
  const RequestId quick = engine.add(constrained("500 501 502 503"));
  const RequestId plain = engine.add(greedy_request({10, 11, 12, 13}, 20));
  while (!engine.outputs[quick].finish_reason || !engine.outputs[plain].finish_reason)
    engine.step();
  for (int i = 0; i < 50; ++i) engine.step();
  CHECK(engine.core.is_idle());
  CHECK(engine.outputs[quick].token_ids == std::vector<TokenId>{500, 501, 502, 503, 1523});
  for (const RequestId id : held) CHECK(engine.outputs[id].token_ids == std::vector<TokenId>{600, 601});
  const RequestId left = engine.add(constrained("600 601 602"));
  while (engine.outputs[left].token_ids.size() < 2) engine.step();
  engine.core.abort(left);
  may_go.set_value();
  run_to_end(engine);

  SteppedEngine prompt(tiny_config(), with_constraints(cpu_backend));
  AddRequest same = constrained("600 601 602 603 604 605|600 601 602 603 606 607");
  same.sampling.repetition_penalty = 1.4f;
  const RequestId expected = prompt.add(std::move(same));
  run_to_end(prompt);
  CHECK(engine.outputs[held[0]].token_ids == prompt.outputs[expected].token_ids);
  CHECK(engine.outputs[held[0]].logprobs.size() == engine.outputs[held[0]].token_ids.size());
  CHECK(engine.outputs[held[1]].token_ids == std::vector<TokenId>{600, 601, 602, 1523});
  CHECK(engine.core.stats().num_free_blocks == engine.core.stats().num_blocks);
  SteppedEngine alone;
  CHECK(engine.outputs[plain].token_ids ==
        alone.finish(greedy_request({10, 11, 12, 13}, 20)).token_ids);
}

TEST_CASE("only the request whose grammar is compiled waits for it", "[engine][core]") {
  std::promise<void> may_go;
  const std::shared_future<void> go = may_go.get_future().share();
  std::atomic<int> compiled = 0;
  const CompileConstraint slow = [&](const ConstraintSpec& spec, const Slice& slice) {
    if (spec.text.starts_with("600")) go.wait();
    ++compiled;
    return compile_fake(spec, slice);
  };
  SteppedEngine engine(tiny_config(), with_constraints(cpu_backend, slow));
  std::vector<RequestId> waiting;
  for (int i = 0; i < 3; ++i) waiting.push_back(engine.add(constrained("600 601")));
  const RequestId left = engine.add(constrained("600 601"));
  const RequestId quick = engine.add(constrained("5"));
  const RequestId plain = engine.add(greedy_request({1, 2, 3}, 5));
  while (!engine.outputs[quick].finish_reason || !engine.outputs[plain].finish_reason)
    engine.step();
  CHECK(engine.core.stats().num_waiting_deferred == 4);
  CHECK(engine.core.stats().num_waiting == 0);
  engine.step();
  CHECK(engine.core.is_idle());
  engine.core.abort(left);
  may_go.set_value();
  run_to_end(engine);
  for (const RequestId id : waiting)
    CHECK(engine.outputs[id].token_ids == std::vector<TokenId>{600, 601, 1523});
  CHECK(compiled == 2);  // one for all who wait, one for the quick one
}

TEST_CASE("an engine that waits for a grammar sleeps, and wakes for it", "[engine][core]") {
  run(2, [](asio::any_io_executor pool) -> awaitable<void> {
    const CompileConstraint slow = [](const ConstraintSpec& spec, const Slice& slice) {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      return compile_fake(spec, slice);
    };
    LiveEngine engine(pool, tiny_config(), with_constraints(cpu_backend, slow));
    co_await engine.start();
    auto generation = engine.group().submit(constrained("5 6"));
    REQUIRE(generation.has_value());
    const RequestOutput all = co_await read_to_end(*generation);
    CHECK(all.token_ids == std::vector<TokenId>{5, 6, 1523});
  });
}

TEST_CASE("penalties leave steps overlapping, with the same tokens", "[engine][core]") {
  const auto ask = [](SteppedEngine& engine) {
    std::vector<RequestId> ids;
    for (int i = 0; i < 4; ++i) {
      AddRequest request = greedy_request({20, 21, 20, 22, 20 + i}, 40);
      request.sampling.ignore_eos = true;
      request.sampling.temperature = i % 2 == 0 ? 0.f : 1.f;
      request.sampling.seed = 7;
      request.sampling.repetition_penalty = i == 3 ? 1.f : 1.3f;
      request.sampling.frequency_penalty = 0.2f * static_cast<float>(i);
      request.sampling.bad_words = {{{30}}};
      ids.push_back(engine.add(std::move(request)));
    }
    return ids;
  };
  EngineConfig config = tiny_config();
  config.scheduler.max_num_seqs = 3;  // the fourth takes a slot that was another's
  SteppedEngine alone(config), overlapping(config, pretend_backend);
  const auto expected = ask(alone), got = ask(overlapping);
  int most_in_flight = 0;
  alone.run();
  while (overlapping.core.has_work()) {
    overlapping.step();
    most_in_flight = std::max(most_in_flight, overlapping.core.runner().num_in_flight());
  }
  CHECK(most_in_flight == 1);  // step() leaves one under way
  for (std::size_t i = 0; i < got.size(); ++i) {
    INFO(i);
    CHECK(alone.outputs[expected[i]].token_ids.size() == 40);
    CHECK(alone.outputs[expected[i]].token_ids == overlapping.outputs[got[i]].token_ids);
  }
}

TEST_CASE("a salt that is not text is refused", "[engine][core]") {
  SteppedEngine engine;
  AddRequest forged = greedy_request({1, 2, 3}, 2);
  forged.cache_salt = "\x1fpositions+131072";
  const RequestOutput& output = engine.finish(std::move(forged));
  REQUIRE(output.error);
  CHECK(output.error->code == ErrorCode::invalid_argument);
  CHECK(output.error->field == "/cache_salt");
}

}  // namespace
}  // namespace quire::test
