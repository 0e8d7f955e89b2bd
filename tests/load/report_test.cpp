#include "load/report.h"

#include <catch2/catch.hpp>

#include "base/error.h"

using namespace quire::load;

TEST_CASE("percentiles are nearest rank", "[load][report]") {
  std::vector<double> samples;
  for (int i = 100; i >= 1; --i) samples.push_back(i);
  const Percentiles p = Percentiles::of(samples);
  CHECK(p.count == 100);
  CHECK(p.mean == Approx(50.5));
  CHECK(p.p50 == 50);
  CHECK(p.p90 == 90);
  CHECK(p.p99 == 99);
  CHECK(p.p999 == 100);
  CHECK(p.max == 100);
  CHECK(Percentiles::of({}).count == 0);
}

TEST_CASE("a report counts failures apart and times from when a request was due",
          "[load][report]") {
  const Record good{.outcome = Outcome::ok,
                    .status = 200,
                    .error = "",
                    .finish_reason = "stop",
                    .due = 1.0,
                    .sent = 1.1,
                    .first_token = 1.2,
                    .end = 1.4,
                    .gaps = {0.1f, 0.1f},
                    .prompt_tokens = 7,
                    .output_tokens = 3};
  Record bad;
  bad.outcome = Outcome::http_error;
  bad.error = "503 busy";
  bad.due = bad.sent = 2.0;
  bad.end = 3.0;
  const Report report = summarize({good, bad}, 0.5, ServiceLevel{0.25, 0.15});
  CHECK(report.ok == 1);
  CHECK(report.failed == 1);
  CHECK(report.seconds == Approx(2.0));
  CHECK(report.time_to_first_token.p50 == Approx(200));
  CHECK(report.end_to_end.p50 == Approx(400));
  CHECK(report.per_output_token.p50 == Approx(100));
  CHECK(report.send_lag.max == Approx(100));
  CHECK(report.output_tokens_per_second() == Approx(1.5));
  CHECK(report.client_cpu == Approx(0.25));
  REQUIRE(report.goodput);
  CHECK(*report.goodput == Approx(0.5));
  CHECK(report.examples.at("http_error") == "503 busy");
  CHECK(summarize({good}, 0, ServiceLevel{0.15, 0.15}).goodput == Approx(0.0));
}

TEST_CASE("only http addresses are taken", "[load][client]") {
  CHECK(Target::parse("http://127.0.0.1:9").port == "9");
  CHECK(Target::parse("http://host/v1").port == "80");
  CHECK_THROWS_AS(Target::parse("https://host"), quire::Failure);
}
