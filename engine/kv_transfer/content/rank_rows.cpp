#include "engine/kv_transfer/content/rank_rows.h"

#include <cassert>
#include <cstring>

namespace quire {
namespace {

// The state as rows of columns, where ranks have some of the columns; else as one row.
void add_state(RankRow& row, const StateTensor& whole, const StateTensor& own, const Shard& shard) {
  const auto element = static_cast<std::int64_t>(size_of(own.dtype));
  const auto bytes_of = [&](const StateTensor& state) {
    std::int64_t bytes = element;
    for (const std::int64_t extent : state.shape) bytes *= extent;
    return bytes;
  };
  const auto add = [&](std::int64_t in_whole, std::int64_t in_own, std::int64_t bytes) {
    row.parts.push_back({row.whole_bytes + in_whole, row.own_bytes + in_own, bytes});
  };
  if (own.columns.empty()) {
    const std::int64_t bytes = bytes_of(own);
    add(bytes_of(whole) == bytes ? 0 : shard.rank * bytes, 0, bytes);
  } else {
    const std::int64_t wide = whole.shape.back() * element;
    std::int64_t at = 0;
    for (std::int64_t i = 0; i < whole.shape.front(); ++i) {
      for (const Range& range : own.columns) {
        add(i * wide + range.begin * element, at, range.size() * element);
        at += range.size() * element;
      }
    }
  }
  row.whole_bytes += bytes_of(whole);
  row.own_bytes += bytes_of(own);
}

}  // namespace

RankRow rank_row(const KvSpec& whole, const KvSpec& own, const Shard& shard) {
  RankRow row;
  if (own.kind == KvKind::mamba) {
    for (std::size_t i = 0; i < own.states.size(); ++i)
      add_state(row, whole.states[i], own.states[i], shard);
    row.is_copy = shard.rank > 0 && row.own_bytes == row.whole_bytes;
    return row;
  }
  KvSpec token = own;
  token.block_size = 1;
  const bool latent = own.kind == KvKind::mla || own.kind == KvKind::sliding_window_mla;
  row.own_bytes = static_cast<std::int64_t>(unpadded_page_bytes(token)) / (latent ? 1 : 2);
  row.whole_bytes = row.own_bytes / own.num_kv_heads * whole.num_kv_heads;
  // Neighbouring ranks have the same heads where there are fewer of them.
  const int copies = own.num_kv_heads * shard.size / whole.num_kv_heads;
  assert(copies >= 1 && shard.size % copies == 0);
  row.parts = {{shard.rank / copies * row.own_bytes, 0, row.own_bytes}};
  row.is_copy = shard.rank % copies != 0;
  return row;
}

void RankRow::spread(const std::byte* own, std::byte* whole, int rows) const {
  for (; rows > 0; --rows, own += own_bytes, whole += whole_bytes)
    for (const Part& part : parts)
      std::memcpy(whole + part.in_whole, own + part.in_own, static_cast<std::size_t>(part.bytes));
}

void RankRow::pick(const std::byte* whole, std::byte* own, int rows) const {
  for (; rows > 0; --rows, own += own_bytes, whole += whole_bytes)
    for (const Part& part : parts)
      std::memcpy(own + part.in_own, whole + part.in_whole, static_cast<std::size_t>(part.bytes));
}

}  // namespace quire
