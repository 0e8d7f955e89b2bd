#include "engine/kv_transfer/pages/divided_pages.h"

#include <cstring>
#include <utility>

namespace quire {
namespace {

constexpr std::int64_t kPartBytes = 4 << 20;  // of the whole model's, at a time

// Its strips, then each group's blocks.
std::vector<std::int64_t> encoded(const KvContent& part, const BlockTable& blocks) {
  std::vector<std::int64_t> words{part.num_tokens, static_cast<std::int64_t>(part.strips.size())};
  for (const KvStrip& strip : part.strips)
    words.insert(words.end(), {strip.layer, strip.plane, strip.first, strip.rows, strip.row_bytes,
                               strip.offset});
  words.push_back(static_cast<std::int64_t>(blocks.size()));
  for (const auto& table : blocks) {
    words.push_back(static_cast<std::int64_t>(table.size()));
    words.insert(words.end(), table.begin(), table.end());
  }
  return words;
}

std::pair<KvContent, BlockTable> decoded(std::span<const std::int64_t> words) {
  const auto next = [&] {
    const std::int64_t word = words.front();
    words = words.subspan(1);
    return word;
  };
  const auto number = [&] { return static_cast<int>(next()); };
  KvContent content{.num_tokens = number()};
  for (std::int64_t left = next(); left > 0; --left) {
    KvStrip strip;
    strip.layer = number();
    strip.plane = number();
    strip.first = number();
    strip.rows = number();
    strip.row_bytes = next();
    strip.offset = next();
    content.strips.push_back(strip);
    content.bytes += strip.bytes();
  }
  BlockTable blocks(static_cast<std::size_t>(next()));
  for (auto& table : blocks) {
    table.resize(static_cast<std::size_t>(next()));
    for (BlockId& block : table) block = static_cast<BlockId>(next());
  }
  return {std::move(content), std::move(blocks)};
}

// Parts whose offsets begin with 0, and where each begins in the whole.
template <class Visit>
void for_each_part(const KvContent& content, Visit visit) {
  for (KvContent& part : kv_parts(content, kPartBytes)) {
    const std::int64_t begin = part.strips.front().offset;
    for (KvStrip& strip : part.strips) strip.offset -= begin;
    visit(part, static_cast<std::size_t>(begin));
  }
}

}  // namespace

RankPages::RankPages(Device& device, std::vector<LayerCache> layers, std::vector<RankRow> rows)
    : pages_(device, std::move(layers)), rows_(std::move(rows)) {}

// The same rows, as long as the rank's are.
KvContent RankPages::own(const KvContent& content, bool reads) const {
  KvContent own{.num_tokens = content.num_tokens};
  for (KvStrip strip : content.strips) {
    const RankRow& row = rows_[static_cast<std::size_t>(strip.layer)];
    if (reads && row.is_copy) strip.rows = 0;
    strip.row_bytes = row.own_bytes;
    strip.offset = own.bytes;
    own.bytes += strip.bytes();
    own.strips.push_back(strip);
  }
  return own;
}

bool RankPages::read(const KvContent& content, const BlockTable& blocks, std::span<std::byte> out) {
  const KvContent mine = own(content, true);
  own_bytes_.resize(static_cast<std::size_t>(mine.bytes));
  if (!pages_.read(mine, blocks, own_bytes_)) return false;
  pages_.settle();
  for (std::size_t i = 0; i < mine.strips.size(); ++i) {
    const KvStrip& strip = mine.strips[i];
    rows_[static_cast<std::size_t>(strip.layer)].spread(
        own_bytes_.data() + strip.offset, out.data() + content.strips[i].offset, strip.rows);
  }
  return true;
}

bool RankPages::write(const KvContent& content, const BlockTable& blocks,
                      std::span<const std::byte> bytes) {
  const KvContent mine = own(content, false);
  own_bytes_.resize(static_cast<std::size_t>(mine.bytes));
  for (std::size_t i = 0; i < mine.strips.size(); ++i) {
    const KvStrip& strip = mine.strips[i];
    rows_[static_cast<std::size_t>(strip.layer)].pick(bytes.data() + content.strips[i].offset,
                                                      own_bytes_.data() + strip.offset, strip.rows);
  }
  const bool is_whole = pages_.write(mine, blocks, own_bytes_);
  pages_.settle();
  return is_whole;
}

void RankPages::read(std::span<const std::int64_t> words, std::span<std::byte> out) {
  const auto [content, blocks] = decoded(words);
  read(content, blocks, out);  // rank 0 has looked whether its blocks are there
}

void RankPages::write(std::span<const std::int64_t> words, std::span<const std::byte> bytes) {
  const auto [content, blocks] = decoded(words);
  write(content, blocks, bytes);
}

DividedPages::DividedPages(Device& device, const std::vector<LayerCache>& layers,
                           std::vector<RankRow> rows, OtherRanks& others)
    : CachePages(device, layers), own_(device, layers, std::move(rows)), others_(others) {}

bool DividedPages::read(const KvContent& content, const BlockTable& blocks,
                        std::span<std::byte> out) {
  if (!has_all(content, blocks)) return false;
  for_each_part(content, [&](const KvContent& part, std::size_t begin) {
    const auto bytes =
        others_.read(RankBytes::rows, encoded(part, blocks), static_cast<std::size_t>(part.bytes));
    own_.read(part, blocks, bytes);
    std::memcpy(out.data() + begin, bytes.data(), bytes.size());
  });
  return true;
}

bool DividedPages::write(const KvContent& content, const BlockTable& blocks,
                         std::span<const std::byte> bytes) {
  bool is_whole = true;
  for_each_part(content, [&](const KvContent& part, std::size_t begin) {
    const auto of_part = bytes.subspan(begin, static_cast<std::size_t>(part.bytes));
    others_.write(RankBytes::rows, encoded(part, blocks), of_part);
    is_whole = own_.write(part, blocks, of_part) && is_whole;
  });
  return is_whole;
}

}  // namespace quire
