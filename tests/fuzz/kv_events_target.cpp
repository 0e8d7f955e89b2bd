// KV events made of the bytes, and requests for a replay: what is published is one MessagePack value
// that an independent reader reads to its last byte, with the events that went in.

#include <cstdint>
#include <optional>

#include "engine/kv_events/encoding.h"
#include "tests/fuzz/targets.h"

namespace quire::fuzz {

namespace {

// Numbers and texts off the front; zeros and empty texts once nothing is left.
class Source {
 public:
  explicit Source(std::string_view bytes) : bytes_(bytes) {}

  std::uint64_t number(std::size_t size) {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < size; ++i) value = value << 8 | byte();
    return value;
  }
  std::size_t below(std::size_t limit) { return static_cast<std::size_t>(number(2)) % limit; }
  std::string text() {
    const std::string_view part = bytes_.substr(0, below(300));
    bytes_.remove_prefix(part.size());
    return std::string(part);
  }
  bool is_empty() const { return bytes_.empty(); }

 private:
  std::uint8_t byte() {
    if (bytes_.empty()) return 0;
    const auto first = static_cast<std::uint8_t>(bytes_.front());
    bytes_.remove_prefix(1);
    return first;
  }

  std::string_view bytes_;
};

EventHash hash_from(Source& source) {
  EventHash hash(1 + source.below(3));
  for (Sha256& fine : hash)
    for (auto& one : fine) one = static_cast<std::uint8_t>(source.number(1));
  return hash;
}

BlockStored stored_from(Source& source) {
  BlockStored event;
  for (std::size_t n = source.below(4); n > 0; --n) event.hashes.push_back(hash_from(source));
  if (source.below(2) == 1) event.parent = hash_from(source);
  for (std::size_t n = source.below(70); n > 0; --n)
    event.token_ids.push_back(static_cast<TokenId>(source.number(4)));
  event.block_size = static_cast<int>(source.number(3));
  if (source.below(2) == 1) event.lora_id = static_cast<int>(source.number(4));
  event.lora_name = source.text();
  event.group = static_cast<int>(source.below(4));
  for (std::size_t n = source.below(3); n > 0; --n) {
    auto& keys = event.extra_keys.emplace_back();
    for (std::size_t m = source.below(3); m > 0; --m) {
      keys.emplace_back(source.text());
      keys.emplace_back(ItemKey{source.text(), static_cast<int>(source.number(4))});
    }
  }
  return event;
}

KvEvent event_from(Source& source) {
  switch (source.below(3)) {
    case 0:
      return stored_from(source);
    case 1:
      return BlockRemoved{hash_from(source), static_cast<int>(source.below(4))};
    default:
      return AllBlocksCleared{};
  }
}

// Reads by the format's own description (github.com/msgpack/msgpack, spec.md), not by our writer.
class Walker {
 public:
  explicit Walker(std::string_view bytes) : bytes_(bytes) {}

  bool at_end() const { return at_ == bytes_.size(); }
  // The elements of the array that is next, and of any other value 0; unset: broken.
  std::optional<std::size_t> value() {
    const auto tag = static_cast<std::uint8_t>(take(1).value_or(0xc1));
    if (tag < 0x80 || tag >= 0xe0 || tag == 0xc0) return 0;
    if (tag >= 0xa0 && tag < 0xc0) return skip(tag & 0x1f);
    if (tag >= 0x90 && tag < 0xa0) return elements(tag & 0x0f);
    switch (tag) {
      case 0xc4: case 0xd9: return skip(take(1));
      case 0xc5: case 0xda: return skip(take(2));
      case 0xc6: case 0xdb: return skip(take(4));
      case 0xcc: case 0xd0: return skip(1);
      case 0xcd: case 0xd1: return skip(2);
      case 0xce: case 0xd2: return skip(4);
      case 0xcb: case 0xcf: case 0xd3: return skip(8);
      case 0xdc: return elements(take(2));
      case 0xdd: return elements(take(4));
      default: return std::nullopt;
    }
  }

 private:
  std::optional<std::uint64_t> take(std::size_t size) {
    if (bytes_.size() - at_ < size) return std::nullopt;
    std::uint64_t number = 0;
    for (; size > 0; --size) number = number << 8 | static_cast<std::uint8_t>(bytes_[at_++]);
    return number;
  }
  std::optional<std::size_t> skip(std::optional<std::uint64_t> size) {
    if (!size || bytes_.size() - at_ < *size) return std::nullopt;
    at_ += *size;
    return 0;
  }
  std::optional<std::size_t> elements(std::optional<std::uint64_t> count) {
    if (!count) return std::nullopt;
    for (std::uint64_t i = 0; i < *count; ++i)
      if (!value()) return std::nullopt;
    return static_cast<std::size_t>(*count);
  }

  std::string_view bytes_;
  std::size_t at_ = 0;
};

}  // namespace

void kv_events(std::string_view bytes) {
  Source source(bytes);
  KvEventFormat format{.groups = {{"full_attention", 0}, {source.text(), 128}},
                       .data_parallel_rank = static_cast<int>(source.below(1000)),
                       .int_hashes = source.below(2) == 1};
  std::vector<KvEvent> events;
  while (!source.is_empty() && events.size() < 40) events.push_back(event_from(source));
  const std::string batch = encode_kv_events(1.5, events, format);
  Walker walker(batch);
  promise(walker.value() == std::size_t{3}, "a batch is an array of three");
  promise(walker.at_end(), "nothing follows a batch");
}

}  // namespace quire::fuzz
