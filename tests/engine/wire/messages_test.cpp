#include "engine/wire/messages.h"

#include <catch2/catch.hpp>

namespace quire::test {
namespace {

Clock::time_point at(int seconds) { return Clock::time_point(std::chrono::seconds(seconds)); }

TEST_CASE("two outputs of a request become one", "[engine][wire]") {
  RequestOutput first;
  first.id = RequestId{1};
  first.token_ids = {10};
  first.num_cached_tokens = 32;
  first.times = {at(1), at(2), at(3), at(3)};
  RequestOutput second;
  second.id = RequestId{1};
  second.token_ids = {11, 12};
  second.times.last_token = at(5);
  second.finish_reason = FinishReason::length;
  merge(first, std::move(second));
  CHECK(first.token_ids == std::vector<TokenId>{10, 11, 12});
  CHECK(first.finish_reason == FinishReason::length);
  CHECK(first.num_cached_tokens == 32);
  CHECK(first.times.first_token == at(3));
  CHECK(first.times.last_token == at(5));
}

TEST_CASE("merged steps keep every request's order", "[engine][wire]") {
  StepOutput first;
  first.requests.emplace_back().id = RequestId{1};  // its first output
  first.requests.back().token_ids = {10};
  first.time = at(1);
  first.stats.step_tokens = 5;
  first.stats.steps = 1;
  StepOutput second;
  second.tokens = {{RequestId{1}, 11}};
  second.time = at(2);
  second.stats.step_tokens = 1;
  second.stats.steps = 2;
  merge(first, std::move(second));
  CHECK(first.tokens.empty());
  REQUIRE(first.requests.size() == 1);
  CHECK(first.requests[0].token_ids == std::vector<TokenId>{10, 11});
  CHECK(first.requests[0].times.last_token == at(2));
  CHECK(first.stats.step_tokens == 6);
  CHECK(first.stats.steps == 2);
}

}  // namespace
}  // namespace quire::test
