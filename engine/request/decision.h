#pragma once
// What the scheduler decided about a request, and why: only what changed, so that a steady step
// brings none. The front end keeps them (server/timelines.h).

#include <chrono>
#include <cstdint>

#include "base/fields.h"
#include "base/ids.h"

namespace quire {

// What the numbers first, second and third of a Decision mean stands beside each kind.
enum class DecisionKind : std::uint8_t {
  queued,             // requests before it, tokens of its prompt
  waits_for_turn,     // requests that run, most that may
  waits_for_tokens,   // tokens it would start with, left in the step
  waits_for_blocks,   // blocks free, tokens it would start with
  waits_for_grammar,  // (its constraint is being compiled)
  waits_for_cache,    // (a connector loads its prefix)
  started,            // tokens found in the cache, tokens it knows, tokens in its first step
  resumed,            // the same, after a preemption
  preempted,          // blocks free, computed tokens that are lost, requests still running
  finished,           // tokens of its output, FinishReason
};

struct Decision {
  RequestId request;
  DecisionKind kind = DecisionKind::queued;
  std::chrono::steady_clock::time_point time;
  std::int64_t step = 0;
  std::int64_t first = 0;
  std::int64_t second = 0;
  std::int64_t third = 0;

  using Fields = FieldList<&Decision::request, &Decision::kind, &Decision::time, &Decision::step,
                           &Decision::first, &Decision::second, &Decision::third>;
};

}  // namespace quire
