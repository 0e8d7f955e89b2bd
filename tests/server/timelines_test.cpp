#include "server/timelines.h"

#include <catch2/catch.hpp>

using namespace quire;

namespace {

using std::chrono::milliseconds;
const auto kStart = std::chrono::steady_clock::now() - std::chrono::hours(1);

Decision decision(std::uint64_t request, DecisionKind kind, int at_ms, std::int64_t first = 0,
                  std::int64_t second = 0, std::int64_t third = 0) {
  return {RequestId{request}, kind, kStart + milliseconds(at_ms), at_ms, first, second, third};
}

}  // namespace

TEST_CASE("a request's decisions are found by its HTTP id", "[server][timelines]") {
  Timelines timelines;
  const Decision queued = decision(1, DecisionKind::queued, 0, 3, 40);
  timelines.record({&queued, 1});  // before the front end knows its number
  timelines.begin(RequestId{1}, "abc-1");
  const Decision rest[] = {decision(1, DecisionKind::waits_for_blocks, 5, 2, 40),
                           decision(1, DecisionKind::started, 20, 16, 40, 24),
                           decision(1, DecisionKind::finished, 100, 7, 1)};
  timelines.record(rest);
  for (const char* id : {"abc-1", "chatcmpl-abc-1", "cmpl-abc-1"}) {
    const auto found = timelines.find(id);
    REQUIRE(found.size() == 1);
    CHECK(found[0].num_decisions == 4);
    CHECK(found[0].ended);
    CHECK(found[0].age() == milliseconds(100));
  }
  CHECK(timelines.find("c-1").empty());
  CHECK(timelines.http_id(RequestId{1}) == "abc-1");
  CHECK(timelines.http_id(RequestId{2}).empty());
  CHECK(timelines.find("").empty());
  const std::string json = timelines_json(timelines.find("abc-1"));
  CHECK(json.find("waited 0.020 s of 0.100 s") != std::string::npos);
  CHECK(json.find("2 free blocks of the KV cache are too few for its 40 tokens") != std::string::npos);
  CHECK(json.find("16 of its 40 tokens were in the prefix cache") != std::string::npos);
  CHECK(json.find("ended after 7 tokens: length") != std::string::npos);
}

TEST_CASE("a preempted request is told what it lost, and to whom", "[server][timelines]") {
  Timelines timelines;
  timelines.begin(RequestId{1}, "a");
  const Decision all[] = {decision(1, DecisionKind::queued, 0), decision(1, DecisionKind::started, 10, 0, 8, 8),
                          decision(1, DecisionKind::preempted, 20, 1, 9, 3),
                          decision(1, DecisionKind::resumed, 50, 0, 9, 9),
                          decision(1, DecisionKind::finished, 60, 4, 0)};
  timelines.record(all);
  const std::string json = timelines_json(timelines.find("a"));
  CHECK(json.find("waited 0.040 s of 0.060 s, preempted 1 times") != std::string::npos);
  CHECK(json.find("to the 3 requests that run on, and with them 9 computed tokens") != std::string::npos);
}

TEST_CASE("those that run are kept while others have ended", "[server][timelines]") {
  Timelines timelines(4);
  const auto queue = [&](std::uint64_t id) {
    const Decision queued = decision(id, DecisionKind::queued, 0);
    timelines.begin(RequestId{id}, "r" + std::to_string(id));
    timelines.record({&queued, 1});
  };
  const auto end = [&](std::uint64_t id) {
    const Decision finished = decision(id, DecisionKind::finished, 5);
    timelines.record({&finished, 1});
  };
  for (const std::uint64_t id : {1, 2, 3, 4}) queue(id);
  end(3);
  end(2);
  queue(5);
  queue(6);
  for (const char* kept : {"r1", "r4", "r5", "r6"}) CHECK(timelines.find(kept).size() == 1);
  for (const char* gone : {"r2", "r3"}) CHECK(timelines.find(gone).empty());
  queue(7);  // all run: the oldest gives way
  CHECK(timelines.find("r1").empty());
  end(1);  // and its end, which tells nothing of its beginning, takes no place
  for (const char* kept : {"r4", "r5", "r6", "r7"}) CHECK(timelines.find(kept).size() == 1);
  CHECK(timelines.slowest(10).size() == 4);
}

TEST_CASE("requests that were queued at once and all run are listed", "[server][timelines]") {
  Timelines timelines;
  for (std::uint64_t id = 1; id <= 200; ++id) {
    const Decision queued = decision(id, DecisionKind::queued, 0);
    timelines.record({&queued, 1});
  }
  CHECK(timelines.slowest(200).size() == 200);
}

TEST_CASE("the ring is bounded in requests and in decisions", "[server][timelines]") {
  Timelines timelines(4);
  for (std::uint64_t id = 1; id <= 10; ++id) {
    timelines.begin(RequestId{id}, "r" + std::to_string(id));
    const Decision ends[] = {decision(id, DecisionKind::queued, 0),
                             decision(id, DecisionKind::finished, static_cast<int>(id))};
    timelines.record(ends);
  }
  CHECK(timelines.find("r6").empty());
  CHECK(timelines.find("r7").size() == 1);
  const auto slow = timelines.slowest(2);
  REQUIRE(slow.size() == 2);
  CHECK(slow[0].http_id == "r10");
  for (int i = 0; i < 100; ++i) {
    const Decision again = decision(10, DecisionKind::preempted, 20 + i);
    timelines.record({&again, 1});
  }
  const Timeline one = timelines.find("r10").front();
  CHECK(one.num_decisions == Timeline::kMost);
  CHECK(one.num_left_out == 2 + 100 - static_cast<int>(Timeline::kMost));
  CHECK(one.all().back().step == 119);
}
