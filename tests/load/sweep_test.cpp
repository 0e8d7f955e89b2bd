#include "load/sweep.h"

#include <catch2/catch.hpp>

using namespace quire::load;

namespace {

std::vector<SweepStep> steps_of(const std::vector<int>& tokens_per_second) {
  std::vector<SweepStep> steps;
  for (const int speed : tokens_per_second) {
    Report report;
    report.ok = speed > 0 ? 10 : 0;
    report.failed = 10 - report.ok;
    report.seconds = 1;
    report.output_tokens = speed;
    steps.push_back({1 << steps.size(), report});
  }
  return steps;
}

}  // namespace

TEST_CASE("the knee is the last step worth its conversations", "[load][sweep]") {
  CHECK(knee_of(steps_of({100, 190, 350, 360, 355})) == 2u);
  CHECK(knee_of(steps_of({100, 104, 108, 112})) == 2u);  // over the last knee, not the step before
  CHECK(knee_of(steps_of({100})) == 0u);
  CHECK_FALSE(knee_of(steps_of({0, 0})).has_value());
  CHECK_FALSE(knee_of({}).has_value());
}

TEST_CASE("a sweep ends two steps behind its knee, or where nothing is answered", "[load][sweep]") {
  CHECK_FALSE(is_over({}));
  CHECK_FALSE(is_over(steps_of({100, 190})));
  CHECK_FALSE(is_over(steps_of({100, 190, 191})));
  CHECK(is_over(steps_of({100, 190, 191, 189})));
  CHECK(is_over(steps_of({100, 0})));
}

TEST_CASE("a sweep's table marks its knee, its JSON names it", "[load][sweep]") {
  const auto steps = steps_of({100, 190, 191, 189});
  const std::string table = sweep_table(steps);
  const auto knee = table.find("knee");
  REQUIRE(knee != table.npos);
  CHECK(table.rfind("190.0", knee) > table.rfind('\n', knee));
  CHECK(sweep_json(steps).starts_with("{\"knee\":2,\"sweep\":[{\"concurrency\":1,"));
}
