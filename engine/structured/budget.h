#pragma once
// What a grammar may cost. One meter counts compilation, and again every mask; going over throws
// GrammarFailure{limit}, so that no grammar can hold a thread or grow without end.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <stop_token>
#include <utility>

#include "engine/structured/grammar_error.h"

namespace quire::structured {

struct GrammarLimits {
  std::chrono::milliseconds compile_time{5'000};
  std::chrono::milliseconds step_time{1'000};  // one mask or one token
  std::size_t regex_nodes = 2'000'000;
  std::size_t grammar_states = 400'000;
  std::size_t disjuncts = 4'096;        // alternatives of one schema once allOf is merged
  std::size_t memory_bytes = 512u << 20;  // regular expressions and parser states together
  int depth = 2'000;                    // nested rules in a text
};

class Meter {
 public:
  using Clock = std::chrono::steady_clock;

  void start(std::chrono::milliseconds limit, std::stop_token stop = {}) {
    deadline_ = Clock::now() + limit;
    stop_ = std::move(stop);
  }

  // Looks at the clock, and whether it is asked to stop, once in a while; cheap enough for inner loops.
  void count(std::uint32_t work = 1) {
    spent_ += work;
    if (spent_ < kBetweenLooks) return;
    spent_ = 0;
    if (Clock::now() > deadline_ || stop_.stop_requested()) {
      throw GrammarFailure(GrammarErrorKind::limit, "the grammar takes too long to evaluate");
    }
  }

 private:
  static constexpr std::uint32_t kBetweenLooks = 4'096;
  Clock::time_point deadline_ = Clock::time_point::max();
  std::stop_token stop_;
  std::uint32_t spent_ = 0;
};

}  // namespace quire::structured
