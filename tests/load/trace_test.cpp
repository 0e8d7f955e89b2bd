#include "load/trace.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "tests/support/temp_path.h"

using namespace quire;
using namespace quire::load;

namespace {

std::filesystem::path file_of(const std::string& text) {
  const auto path = temp_path("quire_trace_test");
  std::ofstream(path) << text;
  return path;
}

std::vector<TraceRow> rows_of(const std::string& text) { return read_trace(file_of(text)); }

}  // namespace

TEST_CASE("Mooncake's lines: milliseconds, lengths and blocks", "[load][trace]") {
  const auto rows = rows_of(
      "{\"timestamp\": 27500, \"input_length\": 6758, \"output_length\": 500, \"hash_ids\": [0, 1, 2]}\n"
      "\n"
      "{\"timestamp\": 27000, \"input_length\": 12, \"output_length\": 4, \"hash_ids\": []}\r\n");
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].due == 0);
  CHECK(rows[0].input_tokens == 12);
  CHECK(rows[0].output_tokens == 4);
  CHECK(rows[1].due == Approx(0.5));
  CHECK(rows[1].input_tokens == 6758);
  CHECK(rows[1].blocks == std::vector<std::uint64_t>{0, 1, 2});
}

TEST_CASE("BurstGPT's columns, wherever they stand", "[load][trace]") {
  const auto rows = rows_of(
      "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
      "5,ChatGPT,472,18,490,Conversation log\n"
      "45,GPT-4,1087,230,1317,Conversation log\n");
  REQUIRE(rows.size() == 2);
  CHECK(rows[1].due == 40);
  CHECK(rows[1].input_tokens == 1087);
  CHECK(rows[1].output_tokens == 230);
}

TEST_CASE("Azure's dates, over midnight too", "[load][trace]") {
  const auto rows = rows_of(
      "TIMESTAMP,ContextTokens,GeneratedTokens\n"
      "2023-11-16 23:59:59.9000000,4808,10\n"
      "2023-11-17 00:00:01.4000000,110,27\n");
  REQUIRE(rows.size() == 2);
  CHECK(rows[1].due == Approx(1.5));
}

TEST_CASE("a bad trace is refused with its line", "[load][trace]") {
  using Catch::Contains;
  CHECK_THROWS_WITH(rows_of("{\"timestamp\": 1, \"input_length\": 2}\n"), Contains(":1:"));
  CHECK_THROWS_WITH(rows_of("hello\n"), Contains(":1:") && Contains("Timestamp"));
  const std::string header = "Timestamp,Request tokens,Response tokens\n";
  CHECK_THROWS_WITH(rows_of(header + "1,2\n"), Contains(":2:") && Contains("3 cells"));
  CHECK_THROWS_WITH(rows_of(header + "1,2,3\nnan,2,3\n"), Contains(":3:"));
  CHECK_THROWS_WITH(rows_of(header + "1,-2,3\n"), Contains("lengths"));
  CHECK_THROWS_WITH(rows_of(header + "1,99999999999,3\n"), Contains(":2:"));
  CHECK_THROWS_WITH(
      rows_of("{\"timestamp\":0,\"input_length\":9223372036854775807,\"output_length\":1}"),
      Contains("lengths"));
  for (const char* length : {"-4294967286", "-1", "4294967306"})
    for (const char* other : {"input_length", "output_length"}) {
      const bool is_input = other == std::string("output_length");
      CHECK_THROWS_WITH(rows_of("{\"timestamp\":0,\"" + std::string(other) + "\":1,\"" +
                                (is_input ? "input_length" : "output_length") + "\":" + length + "}"),
                        Contains(":1: lengths"));
    }
  CHECK_THROWS_WITH(rows_of("{\"timestamp\":1e19,\"input_length\":1,\"output_length\":1}"),
                    Contains(":1: a time is at most"));
  CHECK_THROWS_WITH(rows_of(header + "1,2,3\n-1e12,2,3\n"), Contains(":3: a time is at most"));
  CHECK_THROWS_WITH(rows_of(header), Contains("no requests"));
  CHECK_THROWS_AS(read_trace("/nonexistent/trace"), Failure);
}
