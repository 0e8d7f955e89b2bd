#pragma once
// What engines answer to the same requests, and whether it is the same in all that a client sees.

#include <map>
#include <vector>

#include "tests/engine/core/stepped_engine.h"

namespace quire::test {

using Answers = std::map<RequestId, RequestOutput>;

// Of all requests at once. No block is in use afterwards.
inline Answers answers_of(SteppedEngine& engine, const std::vector<AddRequest>& requests) {
  for (const AddRequest& request : requests) engine.add(request);
  engine.run();
  CHECK(engine.core.stats().num_free_blocks == engine.core.stats().num_blocks);
  return engine.outputs;
}

inline void check_equal(const Answers& expected, const Answers& got) {
  REQUIRE(expected.size() == got.size());
  for (const auto& [id, output] : expected) {
    INFO("request " << id.value);
    const RequestOutput& other = got.at(id);
    REQUIRE(output.token_ids == other.token_ids);
    CHECK(output.finish_reason == other.finish_reason);
    CHECK(output.stop_token == other.stop_token);
    REQUIRE(output.logprobs.size() == other.logprobs.size());
    for (std::size_t i = 0; i < output.logprobs.size(); ++i) {
      CHECK(output.logprobs[i].chosen.token == other.logprobs[i].chosen.token);
      CHECK(output.logprobs[i].chosen.logprob == other.logprobs[i].chosen.logprob);
      CHECK(output.logprobs[i].rank == other.logprobs[i].rank);
    }
  }
}

}  // namespace quire::test
