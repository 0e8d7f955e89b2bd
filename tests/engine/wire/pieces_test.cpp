#include "engine/wire/pieces.h"

#include <catch2/catch.hpp>

#include "engine/wire/encoding.h"

namespace quire::test {
namespace {

PositionLogprobs position(int token, int top) {
  PositionLogprobs made;
  made.chosen = {token, -0.5F};
  made.rank = token % 7;
  for (int i = 0; i < top; ++i) made.top.push_back({token + i, -1.0F * static_cast<float>(i)});
  return made;
}

// As bytes, decoded and joined: what a front end sees of it. `frames` counts.
StepOutput across(StepOutput step, std::size_t piece_bytes, std::size_t& frames) {
  const auto sent = encode_in_pieces(std::move(step), {}, piece_bytes);
  frames = sent.size();
  PieceJoiner joiner;
  for (std::size_t i = 0; i < sent.size(); ++i) {
    CHECK(sent[i].size() < 2 * piece_bytes + 4096);
    auto event = joiner.decode(sent[i], {});
    REQUIRE(event.has_value());
    CHECK(event->has_value() == (i + 1 == sent.size()));  // pieces are held back
    if (event->has_value()) return std::get<StepOutput>(std::move(**event));
    CHECK_FALSE(decode_event(sent[i])->has_value());  // other versions pass over them
  }
  return {};
}

TEST_CASE("log-probabilities of a prompt of 200,000 tokens cross in pieces and arrive as one",
          "[engine][wire][pieces]") {
  StepOutput step;
  step.time = Clock::time_point(std::chrono::seconds(5));
  step.stats.step_tokens = 77;
  step.tokens = {{RequestId{9}, 4}};
  RequestOutput& output = step.requests.emplace_back();
  output.id = RequestId{3};
  output.token_ids = {12};
  output.num_cached_tokens = 5;
  output.times.queued = output.times.last_token = step.time;
  for (int i = 0; i < 200'000; ++i) output.prompt_logprobs.push_back(position(i, 3));
  step.requests.emplace_back().id = RequestId{4};
  std::size_t frames = 0;
  const StepOutput seen = across(step, kPieceBytes, frames);
  CHECK(frames > 5);
  CHECK(seen.stats.step_tokens == 77);
  CHECK(seen.tokens.size() == 1);
  REQUIRE(seen.requests.size() == 2);
  CHECK(seen.requests[1].id == RequestId{4});
  const RequestOutput& whole = seen.requests[0];
  CHECK(whole.id == RequestId{3});
  CHECK(whole.prompt_logprobs.size() == 200'000);
  CHECK(whole.prompt_logprobs.at(150'000).chosen.token == 150'000);
  CHECK(whole.prompt_logprobs.at(199'999).top.size() == 3);
  CHECK(whole.token_ids == std::vector<TokenId>{12});
  CHECK(whole.num_cached_tokens == 5);
  CHECK(whole.times.queued == step.time);
}

TEST_CASE("what gathers for a front end that reads nothing is cut at tokens",
          "[engine][wire][pieces]") {
  StepOutput step;
  RequestOutput& output = step.requests.emplace_back();
  output.id = RequestId{3};
  output.finish_reason = FinishReason::length;
  for (int i = 0; i < 5000; ++i) {
    output.token_ids.push_back(i);
    output.logprobs.push_back(position(i, 20));
  }
  std::size_t frames = 0;
  const StepOutput seen = across(step, 10'000, frames);
  CHECK(frames > 50);
  REQUIRE(seen.requests.size() == 1);
  const RequestOutput& joined = seen.requests[0];
  CHECK(joined.token_ids.size() == 5000);
  REQUIRE(joined.logprobs.size() == 5000);
  for (int i = 0; i < 5000; ++i)
    CHECK(joined.logprobs[static_cast<std::size_t>(i)].chosen.token == i);
  CHECK(joined.finish_reason == FinishReason::length);
}

TEST_CASE("a small step stays as it is", "[engine][wire][pieces]") {
  StepOutput step;
  step.requests.emplace_back().id = RequestId{1};
  std::size_t frames = 0;
  CHECK(across(step, kPieceBytes, frames).requests.size() == 1);
  CHECK(frames == 1);
}

}  // namespace
}  // namespace quire::test
