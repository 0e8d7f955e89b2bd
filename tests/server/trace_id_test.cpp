#include "server/http/trace_id.h"

#include <catch2/catch.hpp>
#include <string>

using quire::trace_context_of;
using quire::trace_id_of;

TEST_CASE("the trace of a request is read as W3C writes it", "[server][trace_id]") {
  const std::string trace = "4bf92f3577b34da6a3ce929d0e0e4736", parent = "00f067aa0ba902b7";
  const std::string good = "00-" + trace + "-" + parent + "-01";
  CHECK(trace_id_of(good) == trace);
  CHECK(trace_id_of("cc" + good.substr(2) + "-what-comes-later") == trace);
  for (const std::string& bad :
       {std::string(), good.substr(1), good + "-x", "ff" + good.substr(2), good + "x",
        "cc" + good.substr(2) + "x", "00_" + good.substr(3),
        "00-" + std::string(32, '0') + "-" + parent + "-01",
        "00-" + trace + "-" + std::string(16, '0') + "-01",
        "00-4BF92F3577B34DA6A3CE929D0E0E4736-" + parent + "-01", std::string(55, '-')}) {
    INFO(bad);
    CHECK(trace_id_of(bad).empty());
  }
}

TEST_CASE("whether a trace is sampled is its last bit, whatever else is set", "[server][trace_id]") {
  const std::string ids = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-";
  for (const char* flags : {"01", "03", "0b", "ff"}) CHECK(trace_context_of(ids + flags).sampled);
  for (const char* flags : {"00", "02", "0a", "fe"}) CHECK_FALSE(trace_context_of(ids + flags).sampled);
  const std::string header = ids + "01";
  CHECK(trace_context_of(header).parent_id == "00f067aa0ba902b7");
  CHECK(trace_context_of("nonsense").parent_id.empty());
}
