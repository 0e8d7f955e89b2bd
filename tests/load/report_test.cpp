#include "load/report.h"

#include <catch2/catch.hpp>

#include "base/error.h"
#include "load/compare.h"
#include "load/html.h"

using namespace quire::load;

TEST_CASE("percentiles are nearest rank", "[load][report]") {
  std::vector<double> samples;
  for (int i = 100; i >= 1; --i) samples.push_back(i);
  const Percentiles p = Percentiles::of(samples);
  CHECK(p.count == 100);
  CHECK(p.mean == Approx(50.5));
  CHECK(p.p50 == 50);
  CHECK(p.p90 == 90);
  CHECK(p.p95 == 95);
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
  const auto meets = [&good](ServiceLevel level) { return *summarize({good}, 0, level).goodput > 0; };
  CHECK(meets({.per_output_token = 0.11, .end_to_end = 0.41}));
  CHECK_FALSE(meets({.per_output_token = 0.09}));
  CHECK_FALSE(meets({.end_to_end = 0.39}));
}

TEST_CASE("servers are named as clients of the OpenAI libraries name them", "[load][client]") {
  CHECK(Target::parse("http://127.0.0.1:9").url.port == "9");
  CHECK(Target::parse("http://host/v1").url.port == "80");
  CHECK(Target::parse("http://host/v1/").url.target.empty());
  CHECK(Target::parse("https://host/proxy/v1").url.with_path("/v1/models").text() ==
        "https://host/proxy/v1/models");
  CHECK(Target::parse("unix:/run/quire.sock").url.unix_socket == "/run/quire.sock");
  CHECK_THROWS_AS(Target::parse("ftp://host"), quire::Failure);
  CHECK_THROWS_AS(Target::parse("localhost:8000"), quire::Failure);
}

TEST_CASE("what was sent a second is over the time of sending", "[load][report]") {
  std::vector<Record> records;
  for (int i = 0; i < 11; ++i) {
    Record record;
    record.due = record.sent = 0.5 * i;
    record.end = 30;
    records.push_back(record);
  }
  CHECK(summarize(records, 0, {}).sent_per_second == Approx(2));
}

TEST_CASE("ratios of two servers are of pairs", "[load][report]") {
  std::vector<PairedRun> runs(3);
  const double a[] = {10, 40, 20}, b[] = {5, 10, 20};  // 2, 4, 1: other hours, other speeds
  for (std::size_t i = 0; i < 3; ++i) {
    runs[i].a.time_to_first_token.p50 = a[i];
    runs[i].b.time_to_first_token.p50 = b[i];
  }
  const auto ratios = paired_ratios(runs);
  REQUIRE(ratios.size() == 1);
  CHECK(ratios[0].name == "time to first token p50");
  CHECK(ratios[0].median == 2);
  CHECK(ratios[0].least == 1);
  CHECK(ratios[0].most == 4);
  CHECK(paired_json(runs) ==
        R"({"pairs":3,"ratios":{"time to first token p50":{"median":2,"least":1,"most":4}}})");
}

TEST_CASE("an HTML report is one file with a line for each server", "[load][report]") {
  std::vector<Record> records;
  for (int i = 0; i < 50; ++i) {
    Record record;
    record.outcome = Outcome::ok;
    record.due = record.sent = 0.1 * i;
    record.first_token = record.due + 0.01 * (i % 7 + 1);
    record.end = record.first_token + 0.5;
    record.gaps = {0.1f, 0.2f};
    record.output_tokens = 3;
    records.push_back(record);
  }
  const Report report = summarize(records, 0, {});
  const std::string html =
      html_report({{"http://a<b", report, records}, {"http://c", report, records}}, {{"seed", "<1>"}});
  const auto count = [&](const std::string& what) {
    int found = 0;
    for (auto at = html.find(what); at != std::string::npos; at = html.find(what, at + 1)) ++found;
    return found;
  };
  CHECK(count("<polyline") == 5 * 2);
  CHECK(count("<svg") == 5);
  CHECK(count("http://a<b") == 0);
  CHECK(count("http://a&lt;b") == 1);
  CHECK(count("<1>") == 0);
  CHECK(count("src=") == 0);
  CHECK(count("nan") == 0);
}
