#include "load/event_stream.h"

#include <catch2/catch.hpp>

using quire::load::EventStream;

namespace {

constexpr std::string_view kStream =
    "data: "
    "{\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_"
    "reason\":null}]}\n\n"
    ": keep-alive\n\n"
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hé\"}}]}\r\n\r\n"
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"reasoning\":\"so\"}}]}\n\n"
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0}]}}]}\n\n"
    "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":11,\"completion_tokens\":3}}\n\n"
    "data: [DONE]\n\n";

}  // namespace

TEST_CASE("an event stream is read the same however it is cut", "[load][sse]") {
  for (std::size_t size = 1; size <= kStream.size(); ++size) {
    EventStream events;
    int with_text = 0;
    for (std::size_t at = 0; at < kStream.size(); at += size)
      with_text += events.push(kStream.substr(at, size));
    REQUIRE(with_text == 3);
    REQUIRE(events.done());
    REQUIRE(events.error().empty());
    REQUIRE(events.finish_reason() == "stop");
    REQUIRE(events.prompt_tokens() == 11);
    REQUIRE(events.output_tokens() == 3);
    REQUIRE(events.take_text() == "Hé");
  }
}

TEST_CASE("an error event and an event that is no JSON are errors", "[load][sse]") {
  EventStream failed, garbled;
  failed.push(
      "data: {\"error\":{\"message\":\"engine is gone\",\"code\":500}}\n\ndata: [DONE]\n\n");
  CHECK(failed.error() == "engine is gone");
  garbled.push("data: {\"choices\":\n\n");
  CHECK_FALSE(garbled.error().empty());
}
