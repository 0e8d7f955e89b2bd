#include "engine/kv_hash/block_hash.h"

#include <bit>
#include <cstring>
#include <random>

namespace quire {
namespace {

// Aumasson, Bernstein: "SipHash: a fast short-input PRF", in its 128-bit variant, 1 and 3 rounds.
class SipHash128 {
 public:
  explicit SipHash128(BlockHasher::Key key)
      : v0_(key.low ^ 0x736f6d6570736575),
        v1_(key.high ^ 0x646f72616e646f6d ^ 0xee),
        v2_(key.low ^ 0x6c7967656e657261),
        v3_(key.high ^ 0x7465646279746573) {}

  void word(std::uint64_t m) {
    v3_ ^= m;
    round();
    v0_ ^= m;
    ++words_;
  }

  void bytes(const void* data, std::size_t size) {
    const char* at = static_cast<const char*>(data);
    for (; size >= 8; at += 8, size -= 8) {
      std::uint64_t m;
      std::memcpy(&m, at, 8);
      word(m);
    }
    std::uint64_t rest = static_cast<std::uint64_t>(size) << 56;
    std::memcpy(&rest, at, size);
    word(rest);
  }

  BlockHash finish() {
    word(words_);
    v2_ ^= 0xee;
    for (int i = 0; i < 3; ++i) round();
    const std::uint64_t low = v0_ ^ v1_ ^ v2_ ^ v3_;
    v1_ ^= 0xdd;
    for (int i = 0; i < 3; ++i) round();
    return {low, v0_ ^ v1_ ^ v2_ ^ v3_};
  }

 private:
  void round() {
    v0_ += v1_;
    v1_ = std::rotl(v1_, 13) ^ v0_;
    v0_ = std::rotl(v0_, 32);
    v2_ += v3_;
    v3_ = std::rotl(v3_, 16) ^ v2_;
    v0_ += v3_;
    v3_ = std::rotl(v3_, 21) ^ v0_;
    v2_ += v1_;
    v1_ = std::rotl(v1_, 17) ^ v2_;
    v2_ = std::rotl(v2_, 32);
  }

  std::uint64_t v0_, v1_, v2_, v3_;
  std::uint64_t words_ = 0;
};

void add_text(SipHash128& hash, std::string_view text) {
  hash.word(text.size());
  hash.bytes(text.data(), text.size());
}

}  // namespace

ExtraKeyInputs extra_key_inputs(const Request& request) {
  return {request.lora_name(), request.cache_salt(), request.items(), request.position_offset()};
}

std::vector<ExtraKey> extra_keys(const ExtraKeyInputs& inputs, int start, int end, int& next_item) {
  std::vector<ExtraKey> keys;
  if (!inputs.lora_name.empty()) keys.emplace_back(std::string(inputs.lora_name));
  const int num_items = static_cast<int>(inputs.items.size());
  for (; next_item < num_items; ++next_item) {
    const PromptItem& item = inputs.items[next_item];
    const int item_end = item.offset + item.length;
    if (item.offset >= end) break;
    if (item_end > start) keys.emplace_back(ItemKey{item.identifier, item.offset - start});
    if (item_end > end) break;
  }
  if (start == 0 && !inputs.cache_salt.empty()) keys.emplace_back(std::string(inputs.cache_salt));
  if (start == 0 && inputs.position_offset != 0)
    keys.emplace_back(ItemKey{"position_offset", inputs.position_offset});
  return keys;
}

BlockHasher::Key BlockHasher::random_key() {
  std::random_device source;
  const auto word = [&] { return (std::uint64_t{source()} << 32) | source(); };
  return {word(), word()};
}

BlockHash BlockHasher::root(const Request& request) const {
  SipHash128 hash(key_);
  add_text(hash, request.lora_name());
  add_text(hash, request.cache_salt());
  hash.word(static_cast<std::uint64_t>(request.position_offset()));
  return hash.finish();
}

BlockHash BlockHasher::block(const BlockHash& parent, std::span<const TokenId> tokens,
                             const std::vector<ExtraKey>& extras) const {
  SipHash128 hash(key_);
  hash.word(parent.low);
  hash.word(parent.high);
  hash.bytes(tokens.data(), tokens.size_bytes());
  for (const ExtraKey& extra : extras) {
    if (const auto* item = std::get_if<ItemKey>(&extra)) {
      add_text(hash, item->identifier);
      hash.word(static_cast<std::uint64_t>(static_cast<std::int64_t>(item->offset)));
    }
  }
  return hash.finish();
}

void BlockHasher::extend(Request& request, int num_tokens) const {
  const auto size = static_cast<std::size_t>(block_size_);
  const std::size_t num_full = static_cast<std::size_t>(num_tokens) / size;
  std::vector<BlockHash>& hashes = request.block_hashes;
  if (hashes.size() >= num_full) return;
  BlockHash parent = hashes.empty() ? root(request) : hashes.back();
  const bool has_items = !request.items().empty();
  const ExtraKeyInputs items_only{{}, {}, request.items()};
  std::vector<ExtraKey> extras;
  int next_item = 0;
  while (hashes.size() < num_full) {
    const std::size_t start = hashes.size() * size;
    if (has_items) {
      extras = extra_keys(items_only, static_cast<int>(start), static_cast<int>(start + size),
                          next_item);
    }
    parent = block(parent, request.tokens().subspan(start, size), extras);
    hashes.push_back(parent);
  }
}

}  // namespace quire
