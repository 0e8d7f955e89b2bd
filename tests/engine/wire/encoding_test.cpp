#include "engine/wire/encoding.h"

#include <catch2/catch.hpp>

#include "engine/wire/protobuf.h"
#include "tests/engine/wire/sample_messages.h"
#include "tests/engine/wire/schema_text.h"

namespace quire::test {
namespace {

// A message of one kind with one field inside.
std::string envelope(int kind, const std::string& body) {
  proto::Writer writer;
  writer.bytes(kind, body);
  return writer.out;
}

// Who adds a member to a struct must give it a number too.
TEST_CASE("every member of a message is on the wire", "[engine][wire]") {
  const auto counts = message_counts();
  CHECK(counts.size() >= 25);
  for (const MessageCount& message : counts) {
    INFO(message.name);
    CHECK(message.fields == message.members);
  }
}

TEST_CASE("a newer version's fields are skipped", "[engine][wire]") {
  proto::Writer body;
  body(1, std::uint32_t{3});
  body(2, std::string("9.9"));
  body(100, std::string("what is this"));
  body(101, 1.5f);
  body(102, 2.5);
  body(103, std::int64_t{-1});
  const auto event = decode_event(envelope(1, body.out));
  REQUIRE(event.has_value());
  REQUIRE(event->has_value());
  const auto& hello = std::get<Hello>(**event);
  CHECK(hello.engine == EngineId{3});
  CHECK(hello.version == "9.9");
}

TEST_CASE("a newer version's kind of message is no error", "[engine][wire]") {
  const auto event = decode_event(envelope(99, "anything"));
  REQUIRE(event.has_value());
  CHECK_FALSE(event->has_value());
}

TEST_CASE("an unknown finish reason still ends the request", "[engine][wire]") {
  proto::Writer output;
  output(1, std::uint64_t{7});
  output(4, 17);
  proto::Writer step;
  step.bytes(2, output.out);
  const auto event = decode_event(envelope(4, step.out));
  REQUIRE(event.has_value());
  const auto& requests = std::get<StepOutput>(**event).requests;
  REQUIRE(requests.size() == 1);
  CHECK(requests[0].finish_reason == FinishReason::stop);
}

TEST_CASE("a field of another type than expected is skipped", "[engine][wire]") {
  proto::Writer body;
  body(1, std::string("not a number"));
  const auto event = decode_event(envelope(1, body.out));
  REQUIRE(event.has_value());
  CHECK(std::get<Hello>(**event).engine == EngineId{0});
}

TEST_CASE("every truncation is an error or a message, never more", "[engine][wire]") {
  for (const EngineEvent& event : sample_events()) {
    const std::string bytes = encode(event);
    int errors = 0;
    for (std::size_t size = 1; size < bytes.size(); ++size) {
      errors += !decode_event(bytes.substr(0, size)).has_value();
    }
    CHECK(errors == static_cast<int>(bytes.size()) - 1);  // the envelope's length does not lie
  }
}

TEST_CASE("broken bytes are refused", "[engine][wire]") {
  struct Case {
    const char* name;
    std::string bytes;
  };
  const auto c = GENERATE(values<Case>({
      {"field number 0", std::string("\x00\x01", 2)},
      {"endless varint", std::string(11, '\xff')},
      {"length beyond the end", "\x0a\x7f"},
      {"group, a wire type of the past", "\x0b"},
      {"half a double", "\x09\x01\x02"},
  }));
  INFO(c.name);
  CHECK_FALSE(decode_event(c.bytes).has_value());
}

TEST_CASE("a short message cannot ask for endless elements", "[engine][wire]") {
  proto::Writer step;
  for (std::size_t i = 0; i <= proto::kMaxRepeated; ++i) step.bytes(2, "");
  CHECK_FALSE(decode_event(envelope(4, step.out)).has_value());
}

TEST_CASE("frames come out however the stream is cut", "[engine][wire]") {
  std::string stream;
  const std::vector<std::string> messages{"", "a", std::string(70'000, 'b'), "last"};
  for (const auto& message : messages) append_frame(stream, message);
  const std::size_t piece = GENERATE(1u, 3u, 4096u, 1'000'000u);
  FrameReader reader;
  std::vector<std::string> got;
  for (std::size_t at = 0; at < stream.size(); at += piece) {
    reader.append(std::string_view(stream).substr(at, piece));
    while (true) {
      const auto frame = reader.next();
      REQUIRE(frame.has_value());
      if (!frame->has_value()) break;
      got.emplace_back(**frame);
    }
  }
  CHECK(got == messages);
}

TEST_CASE("a frame over the limit is refused by its length alone", "[engine][wire]") {
  FrameReader reader;
  reader.append(std::string("\xff\xff\xff\x7f", 4));
  const auto frame = reader.next();
  REQUIRE_FALSE(frame.has_value());
  CHECK(frame.error().code == ErrorCode::too_large);
}

}  // namespace
}  // namespace quire::test
