#include "engine/scheduler/state_steps.h"

#include <catch2/catch.hpp>

namespace quire {
namespace {

Request prompt_of(int num_tokens) {
  RequestInit init;
  init.prompt.assign(num_tokens, 7);
  return Request(std::move(init));
}

// The steps that compute the whole prompt, each with the budget that is given for it; the last
// budget is everyone's after it.
std::vector<int> steps(const StateSteps& states, const Request& request, std::vector<int> budgets,
                       int num_computed = 0) {
  std::vector<int> taken;
  for (std::size_t i = 0; num_computed < request.num_tokens(); ++i) {
    const int budget = budgets[std::min(i, budgets.size() - 1)];
    const int wanted = std::min(budget, request.num_tokens() - num_computed);
    taken.push_back(tokens_in_step(states, request, num_computed, wanted));
    REQUIRE(taken.back() > 0);
    num_computed += taken.back();
  }
  return taken;
}

StateSteps mode(StateCacheMode mode, int block_size = 528) {
  return {.mode = mode, .block_size = block_size, .hit_alignment = block_size};
}

}  // namespace

TEST_CASE("Mode align steps by whole blocks to the last boundary", "[scheduler]") {
  const Request request = prompt_of(5000);
  StateSteps states = mode(StateCacheMode::align);
  CHECK(steps(states, request, {2048}) == std::vector{1584, 1584, 1584, 248});
  states.use_eagle = true;
  CHECK(steps(states, request, {2048}) == std::vector{1584, 1584, 1056, 776});
  CHECK(tokens_in_step(states, request, 0, 527) == 0);
}

TEST_CASE("Mode all ends a step at every boundary", "[scheduler]") {
  CHECK(steps(mode(StateCacheMode::all), prompt_of(1700), {2048}) ==
        std::vector{528, 528, 528, 116});
  CHECK(steps(mode(StateCacheMode::all), prompt_of(1700), {300}) ==
        std::vector{300, 228, 300, 228, 300, 228, 116});
}

TEST_CASE("Mode none does not end steps early", "[scheduler]") {
  CHECK(steps(mode(StateCacheMode::none), prompt_of(5000), {2048}) == std::vector{2048, 2048, 904});
}

TEST_CASE("Mode adaptive ends steps where later requests go on", "[scheduler]") {
  const StateSteps states = mode(StateCacheMode::adaptive);
  Request request = prompt_of(5000);
  CHECK(steps(states, request, {2048}) == std::vector{1584, 1584, 1584, 248});
  SECTION("where the prompt parts from what is cached") {
    request.shared_prefix = 2112;
    CHECK(steps(states, request, {2048}) == std::vector{1584, 528, 2048 / 528 * 528, 1056, 248});
    CHECK(steps(states, request, {8192}) == std::vector{2112, 2640, 248});
    CHECK(steps(states, request, {8192}, 2112) == std::vector{2640, 248});
  }
  SECTION("below the end of a prompt of whole blocks") {
    CHECK(steps(states, prompt_of(4 * 528), {8192}) == std::vector{3 * 528, 528});
    CHECK(steps(states, prompt_of(528), {8192}) == std::vector{528});
  }
  SECTION("a whole prompt that is shared needs no stop of its own") {
    request.shared_prefix = 4752;
    CHECK(steps(states, request, {8192}) == std::vector{4752, 248});
  }
  SECTION("a block earlier where a hit loses its last block") {
    StateSteps eagle = states;
    eagle.use_eagle = true;
    CHECK(steps(eagle, request, {8192}) == std::vector{4224, 528, 248});
  }
}

TEST_CASE("A step that begins within a block ends with it at the latest", "[scheduler]") {
  const StateSteps states = mode(StateCacheMode::adaptive);
  CHECK(steps(states, prompt_of(1700), {992, 2048}) == std::vector{528, 1056, 116});
  CHECK(steps(states, prompt_of(1700), {400, 2048}) == std::vector{400, 128, 1056, 116});
  CHECK(steps(states, prompt_of(700), {64}) ==
        std::vector{64, 64, 64, 64, 64, 64, 64, 64, 16, 64, 64, 44});
}

TEST_CASE("Steps of a prompt end at chunks of the device, but for its end", "[scheduler]") {
  StateSteps states = mode(StateCacheMode::none);
  states.chunk = 64;
  CHECK(steps(states, prompt_of(300), {100}) == std::vector{64, 64, 64, 100, 8});
  CHECK(steps(states, prompt_of(300), {1000}) == std::vector{300});
  CHECK(steps(states, prompt_of(40), {30}) == std::vector{30, 10});
  CHECK(tokens_in_step(states, prompt_of(300), 0, 63) == 0);
  CHECK(tokens_in_step(states, prompt_of(300), 20, 60) == 44);
  CHECK(steps(states, prompt_of(300), {1000}, 20) == std::vector{44, 236});
  CHECK(tokens_in_step(states, prompt_of(300), 20, 43) == 0);
  CHECK(tokens_in_step(states, prompt_of(300), 260, 40) == 40);
  SECTION("at blocks' boundaries, too") {
    states = mode(StateCacheMode::adaptive, 576);
    states.chunk = 64;
    CHECK(steps(states, prompt_of(1000), {300}) == std::vector{256, 256, 64, 256, 168});
    states.mode = StateCacheMode::all;
    CHECK(steps(states, prompt_of(1000), {300}) == std::vector{256, 256, 64, 256, 168});
    states.mode = StateCacheMode::align;
    CHECK(steps(states, prompt_of(1000), {700}) == std::vector{576, 424});
  }
  SECTION("by fewer tokens than a chunk only where the cache has no room for one") {
    CHECK(fewer_tokens_in_step(states, prompt_of(300), 0, 300) == 128);
    CHECK(fewer_tokens_in_step(states, prompt_of(300), 0, 100) == 64);
    CHECK(fewer_tokens_in_step(states, prompt_of(300), 0, 64) == 32);
    CHECK(fewer_tokens_in_step(states, prompt_of(300), 0, 1) == 0);
  }
}

TEST_CASE("Steps end at chunks where blocks do and a step has room for one", "[scheduler]") {
  KvCacheConfig config;
  config.state_chunk = 64;
  config.groups.resize(1);
  config.groups[0].spec.kind = KvKind::mamba;
  config.groups[0].spec.state_cache_mode = StateCacheMode::adaptive;
  config.groups[0].spec.block_size = 128;
  CHECK(state_steps(config, 64).chunk == 64);
  CHECK(state_steps(config, 63).chunk == 1);
  config.groups[0].spec.block_size = 528;
  CHECK(state_steps(config, 2048).chunk == 1);
  config.groups[0].spec.state_cache_mode = StateCacheMode::none;
  CHECK(state_steps(config, 2048).chunk == 64);
}

TEST_CASE("What is generated is computed as it comes", "[scheduler]") {
  for (const StateCacheMode each :
       {StateCacheMode::align, StateCacheMode::all, StateCacheMode::adaptive}) {
    Request request = prompt_of(16);
    request.append(3);
    CHECK(tokens_in_step(mode(each, 4), request, 16, 1) == 1);
    // After a preemption its output is computed like a prompt.
    for (int i = 0; i < 20; ++i) request.append(3);
    CHECK(tokens_in_step(mode(each, 4), request, 18, 10) ==
          (each == StateCacheMode::align ? 8 : 2));
  }
}

}  // namespace quire
