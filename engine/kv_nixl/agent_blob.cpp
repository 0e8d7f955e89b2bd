#include "engine/kv_nixl/agent_blob.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace quire {
namespace {

constexpr std::string_view kBegin = "nixlSerDes|";
constexpr std::size_t kMaxNameBytes = 256;
constexpr std::uint64_t kMaxBackends = 16;
constexpr std::uint64_t kMaxSections = 64;
constexpr std::size_t kDescriptorBytes = 24;  // before the key

[[noreturn]] void fail(const std::string& why) {
  throw Failure(ErrorCode::invalid_argument, "the agent's metadata " + why);
}

std::uint64_t number_at(std::string_view bytes, std::size_t at) {
  std::uint64_t value = 0;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {
    if (!rest_.starts_with(kBegin)) fail("does not begin like one");
    rest_.remove_prefix(kBegin.size());
  }

  bool at_end() const { return rest_.empty(); }

  // Never empty: the library takes that for an error.
  std::string_view field(std::string_view tag) {
    if (!rest_.starts_with(tag)) fail(fmt::format("has no \"{}\" where it must be", tag));
    rest_.remove_prefix(tag.size());
    if (rest_.size() < 9) fail("ends too early");
    const std::uint64_t size = number_at(rest_, 0);
    rest_.remove_prefix(8);
    if (size >= rest_.size()) fail("ends too early");
    if (size == 0) fail(fmt::format("has an empty \"{}\"", tag));
    const std::string_view value = rest_.substr(0, size);
    if (rest_[size] != '|') fail("has a field that does not end where it says");
    rest_.remove_prefix(size + 1);
    return value;
  }

  std::uint64_t count(std::string_view tag, std::uint64_t most) {
    const std::string_view value = field(tag);
    if (value.size() != 8) fail(fmt::format("has a \"{}\" that is no number", tag));
    const std::uint64_t count = number_at(value, 0);
    if (count > most) fail(fmt::format("counts {} of \"{}\"; {} are allowed", count, tag, most));
    return count;
  }

 private:
  std::string_view rest_;
};

AgentBlob::Range range_of(std::string_view descriptor, std::int32_t memory) {
  if (descriptor.size() <= kDescriptorBytes) fail("has memory without a key");
  AgentBlob::Range range{.memory = memory,
                         .address = number_at(descriptor, 0),
                         .bytes = number_at(descriptor, 8),
                         .device = number_at(descriptor, 16)};
  if (range.bytes == 0 || range.address + range.bytes < range.address)
    fail("has memory that wraps around");
  return range;
}

void read_section(Reader& reader, std::size_t most, AgentBlob& blob) {
  if (reader.field("bknd") != "UCX") fail("offers memory by another backend than UCX");
  if (reader.field("nixlDList") != "nixlSDList") fail("has another list than of memory");
  const std::string_view type = reader.field("t");
  if (type.size() != 4) fail("has memory without a kind");
  std::int32_t memory = 0;
  std::memcpy(&memory, type.data(), sizeof memory);
  const std::uint64_t count = reader.count("n", most);
  for (std::uint64_t i = 0; i < count; ++i)
    blob.ranges.push_back(range_of(reader.field(""), memory));
}

}  // namespace

bool AgentBlob::covers(std::int32_t memory, std::uint64_t address, std::uint64_t bytes) const {
  return std::ranges::any_of(ranges, [&](const Range& range) {
    return range.memory == memory && address >= range.address && bytes <= range.bytes &&
           address - range.address <= range.bytes - bytes;
  });
}

Result<AgentBlob> parse_agent_blob(std::string_view bytes) try {
  if (bytes.size() > kMaxAgentBlobBytes) fail("is too long");
  Reader reader(bytes);
  AgentBlob blob;
  blob.name = reader.field("Agent");
  if (blob.name.size() > kMaxNameBytes) fail("has too long a name");
  const std::uint64_t backends = reader.count("Conns", kMaxBackends);
  for (std::uint64_t i = 0; i < backends; ++i) {
    if (reader.field("t") != "UCX") fail("has another backend than UCX");
    reader.field("c");
  }
  if (reader.field("") != "MemSection") fail("has no memory");
  const std::uint64_t sections = reader.count("nixlSecElms", kMaxSections);
  for (std::uint64_t i = 0; i < sections; ++i) read_section(reader, bytes.size(), blob);
  if (!reader.at_end()) fail("goes on behind its end");
  return blob;
} catch (const Failure& failure) {
  return failure.error();
}

}  // namespace quire
