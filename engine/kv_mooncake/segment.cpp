#include "engine/kv_mooncake/segment.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/json.h"
#include "base/json_text.h"

namespace quire {
namespace {

constexpr std::size_t kMostMemories = 1 << 16;

Error refuse(const std::string& why) {
  return {ErrorCode::invalid_argument, "Mooncake's handshake: " + why, {}};
}

MooncakeSegment read_segment(const Json& root) {
  MooncakeSegment segment;
  segment.name = root.need_text("name");
  const std::string protocol = root.need_text("protocol");
  if (protocol != "tcp")
    root.at("protocol").fail("is " + root.at("protocol").describe() + "; tcp is spoken here");
  constexpr IntRange kPorts{1, 65535};
  segment.data_port = static_cast<std::uint16_t>(root.need_integer({"tcp_data_port"}, kPorts));
  segment.has_status = root.integer({"tcp_proto_version"}).value_or(1) >= 2;
  constexpr IntRange kAll{1, std::numeric_limits<std::int64_t>::max()};
  const auto buffers = root.at("buffers").items();
  if (buffers.size() > kMostMemories) root.at("buffers").fail("has too many items");
  for (const Json& buffer : buffers)
    segment.memory.push_back({static_cast<std::uint64_t>(buffer.at("addr").as_integer(kAll)),
                              static_cast<std::uint64_t>(buffer.at("length").as_integer(kAll))});
  return segment;
}

}  // namespace

bool MooncakeSegment::covers(std::uint64_t address, std::uint64_t bytes) const {
  return std::ranges::any_of(memory, [&](const Memory& one) {
    return bytes <= one.bytes && address >= one.address &&
           address - one.address <= one.bytes - bytes;
  });
}

std::string mooncake_hello(MooncakeHello kind, std::string_view json) {
  const std::uint64_t size = json.size() + 1;
  std::string frame(sizeof size, '\0');
  std::memcpy(frame.data(), &size, sizeof size);
  frame += static_cast<char>(kind);
  return frame += json;
}

Result<ParsedHello> parse_mooncake_hello(std::string_view body) {
  if (body.empty() || static_cast<std::uint8_t>(body[0]) > 3)
    return refuse("a frame is of no known kind");
  return ParsedHello{static_cast<MooncakeHello>(body[0]), body.substr(1)};
}

std::string segment_json(const MooncakeSegment& segment) {
  std::string name;
  append_json_text(name, segment.name);
  std::string json = fmt::format(
      R"({{"name":{},"protocol":"tcp","tcp_data_port":{},"tcp_proto_version":{},"timestamp":"",)"
      R"("buffers":[)",
      name, segment.data_port, segment.has_status ? 2 : 1);
  for (std::size_t i = 0; i < segment.memory.size(); ++i)
    json += fmt::format(R"({}{{"name":{},"addr":{},"length":{}}})", i > 0 ? "," : "", name,
                        segment.memory[i].address, segment.memory[i].bytes);
  return json + "]}";
}

Result<MooncakeSegment> parse_segment(std::string_view json) try {
  const JsonDocument document(std::string(json), {});
  return read_segment(document.object());
} catch (const Failure& failure) {
  return refuse(failure.what());
}

}  // namespace quire
