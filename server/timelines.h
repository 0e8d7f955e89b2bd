#pragma once
// What became of the latest requests: the scheduler's decisions about each, as the engines tell
// them. As many as there is room for, so that it costs the same after a day as after an hour; those
// that have ended make room first, the earliest end before others. Any thread.

#include <array>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/wire/messages.h"

namespace quire {

// One request to an engine; n choices of one HTTP request are n of them.
struct Timeline {
  static constexpr std::size_t kMost = 24;  // decisions; of more, the first and the latest stay

  RequestId request;
  std::string http_id;  // X-Request-Id, as the log has it; empty: not told yet
  std::chrono::steady_clock::time_point begin{};
  std::array<Decision, kMost> decisions{};
  std::size_t num_decisions = 0;
  std::int64_t num_left_out = 0;
  bool ended = false;

  std::span<const Decision> all() const { return std::span(decisions).first(num_decisions); }
  // Until its end; of one that runs, until now.
  std::chrono::steady_clock::duration age(
      std::chrono::steady_clock::time_point now = std::chrono::steady_clock::now()) const;
};

class Timelines {
 public:
  explicit Timelines(std::size_t capacity = 1024) : ring_(capacity) {}

  // A request went to an engine. Its first decisions may have come before.
  void begin(RequestId request, std::string_view http_id);
  void record(std::span<const Decision> decisions);

  // By the HTTP request's id, with or without what an API puts before it ("chatcmpl-…").
  std::vector<Timeline> find(std::string_view http_id) const;
  // X-Request-Id of an engine's request; empty: not remembered.
  std::string http_id(RequestId request) const;
  // Those that took longest, the slowest first.
  std::vector<Timeline> slowest(std::size_t count) const;

 private:
  Timeline& make(RequestId request);
  std::size_t free_place();

  mutable std::mutex mutex_;
  std::vector<Timeline> ring_;
  std::unordered_map<RequestId, std::size_t> place_;
  std::deque<RequestId> ended_;  // in the order of their ends; some are gone
  std::size_t next_ = 0;
};

std::string_view name_of(DecisionKind kind);  // "waits_for_blocks"
std::string sentence_of(const Decision& decision);

// As JSON, each decision with a sentence for people.
std::string timelines_json(std::span<const Timeline> timelines);

}  // namespace quire
