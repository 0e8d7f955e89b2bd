#include "server/timelines.h"

#include <fmt/format.h>

#include <algorithm>

#include "openapi/json_writer.h"

namespace quire {

namespace {

using openapi::JsonWriter;
using Clock = std::chrono::steady_clock;

double seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

std::string start_sentence(const Decision& d) {
  const std::string cache =
      d.first > 0 ? fmt::format("{} of its {} tokens were in the prefix cache", d.first, d.second)
                  : fmt::format("none of its {} tokens were in the prefix cache: no earlier request "
                                "had this beginning, or it was reused since",
                                d.second);
  return fmt::format("{}; the step computes {}", cache, d.third);
}

}  // namespace

std::string_view name_of(DecisionKind kind) {
  constexpr std::string_view kNames[] = {
      "queued",          "waits_for_turn", "waits_for_tokens", "waits_for_blocks",
      "waits_for_grammar", "waits_for_cache", "started",       "resumed",
      "preempted",       "finished"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::string sentence_of(const Decision& d) {
  switch (d.kind) {
    case DecisionKind::queued:
      return fmt::format("joined the queue with {} prompt tokens, behind {} requests", d.second,
                         d.first);
    case DecisionKind::waits_for_turn:
      return fmt::format(
          "is next, but {} requests run, and no more than {} may (SchedulerConfig::max_num_seqs)",
          d.first, d.second);
    case DecisionKind::waits_for_tokens:
      return fmt::format(
          "is next and wants {} tokens of the step, which has {} left "
          "(SchedulerConfig::max_num_batched_tokens)",
          d.first, d.second);
    case DecisionKind::waits_for_blocks:
      return fmt::format("is next, but {} free blocks of the KV cache are too few for its {} tokens",
                         d.first, d.second);
    case DecisionKind::waits_for_grammar:
      return "waits until the grammar of its output is compiled";
    case DecisionKind::waits_for_cache:
      return "waits while its prefix is brought from elsewhere";
    case DecisionKind::started:
      return "started: " + start_sentence(d);
    case DecisionKind::resumed:
      return "started again after its preemption: " + start_sentence(d);
    case DecisionKind::preempted:
      return fmt::format("lost its blocks to the {} requests that run on, and with them {} computed "
                         "tokens; {} blocks were free then",
                         d.third, d.second, d.first);
    case DecisionKind::finished:
      return fmt::format("ended after {} tokens: {}", d.first,
                         quire::name_of(static_cast<FinishReason>(std::clamp<std::int64_t>(d.second, 0, 3))));
  }
  return {};
}

namespace {

// What a person would ask first.
std::string summary(const Timeline& timeline) {
  double waited = 0;
  std::int64_t preemptions = 0;
  std::string why;
  Clock::time_point since = timeline.begin;
  for (const Decision& d : timeline.all()) {
    if (d.kind == DecisionKind::started || d.kind == DecisionKind::resumed) {
      waited += seconds(d.time - since);
    } else if (d.kind == DecisionKind::preempted) {
      ++preemptions;
      since = d.time;
    } else if (d.kind != DecisionKind::finished && d.kind != DecisionKind::queued) {
      why = sentence_of(d);
    }
  }
  std::string text = fmt::format("waited {:.3f} s of {:.3f} s", waited, seconds(timeline.age()));
  if (preemptions > 0) text += fmt::format(", preempted {} times", preemptions);
  return why.empty() ? text : text + "; it " + why;
}

void write(JsonWriter& json, const Timeline& timeline) {
  json.begin_object().key("request_id").string(timeline.http_id);
  json.key("engine_request").integer(static_cast<std::int64_t>(timeline.request.value));
  json.key("seconds").number(seconds(timeline.age())).key("ended").boolean(timeline.ended);
  json.key("summary").string(summary(timeline)).key("decisions").begin_array();
  for (const Decision& d : timeline.all()) {
    json.begin_object().key("seconds").number(seconds(d.time - timeline.begin));
    json.key("step").integer(d.step).key("kind").string(name_of(d.kind));
    json.key("text").string(sentence_of(d)).end_object();
  }
  json.end_array().key("left_out").integer(timeline.num_left_out).end_object();
}

}  // namespace

Clock::duration Timeline::age(Clock::time_point now) const {
  if (num_decisions == 0) return Clock::duration::zero();
  return (ended ? decisions[num_decisions - 1].time : now) - begin;
}

// Never used before, else of the one that ended first, else of the oldest that runs.
std::size_t Timelines::free_place() {
  if (next_ < ring_.size()) return next_++;
  while (!ended_.empty()) {
    const auto found = place_.find(ended_.front());
    ended_.pop_front();
    if (found != place_.end()) return found->second;
  }
  return next_++ % ring_.size();
}

Timeline& Timelines::make(RequestId request) {
  const std::size_t place = free_place();
  Timeline& one = ring_[place];
  if (one.request != RequestId()) place_.erase(one.request);
  one = Timeline{};
  one.request = request;
  place_[request] = place;
  return one;
}

void Timelines::begin(RequestId request, std::string_view http_id) {
  const std::lock_guard lock(mutex_);
  const auto found = place_.find(request);
  Timeline& one = found == place_.end() ? make(request) : ring_[found->second];
  one.http_id = http_id;
  if (one.num_decisions == 0) one.begin = Clock::now();
}

void Timelines::record(std::span<const Decision> decisions) {
  const std::lock_guard lock(mutex_);
  for (const Decision& decision : decisions) {
    const auto found = place_.find(decision.request);
    // Of a request whose beginning is forgotten, the end tells nothing.
    if (found == place_.end() && decision.kind != DecisionKind::queued) continue;
    Timeline& one = found == place_.end() ? make(decision.request) : ring_[found->second];
    if (one.num_decisions == 0) one.begin = decision.time;
    if (one.num_decisions == Timeline::kMost) {
      ++one.num_left_out;
      one.decisions.back() = decision;
    } else {
      one.decisions[one.num_decisions++] = decision;
    }
    one.ended = decision.kind == DecisionKind::finished;
    if (one.ended) ended_.push_back(one.request);
  }
}

std::vector<Timeline> Timelines::find(std::string_view http_id) const {
  const std::lock_guard lock(mutex_);
  std::vector<Timeline> found;
  for (const Timeline& one : ring_) {
    const bool is_it = !one.http_id.empty() &&
                       (one.http_id == http_id || (http_id.ends_with(one.http_id) &&
                                                   http_id[http_id.size() - one.http_id.size() - 1] == '-'));
    if (is_it) found.push_back(one);
  }
  std::ranges::sort(found, {}, [](const Timeline& one) { return one.request.value; });
  return found;
}

std::string Timelines::http_id(RequestId request) const {
  const std::lock_guard lock(mutex_);
  const auto found = place_.find(request);
  return found == place_.end() ? std::string() : ring_[found->second].http_id;
}

std::vector<Timeline> Timelines::slowest(std::size_t count) const {
  std::vector<Timeline> all;
  {
    const std::lock_guard lock(mutex_);
    for (const Timeline& one : ring_) {
      if (one.num_decisions > 0) all.push_back(one);
    }
  }
  // At one time for all: a sort whose elements grow meanwhile runs out of its range.
  const auto age = [now = Clock::now()](const Timeline& one) { return one.age(now); };
  std::ranges::sort(all, std::ranges::greater(), age);
  if (all.size() > count) all.resize(count);
  return all;
}

std::string timelines_json(std::span<const Timeline> timelines) {
  std::string body;
  JsonWriter json(body);
  json.begin_object().key("requests").begin_array();
  for (const Timeline& one : timelines) write(json, one);
  json.end_array().end_object();
  return body;
}

}  // namespace quire
