#include "model/shard.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace quire {

std::int64_t widest_share(const Shard& shard, std::int64_t n) {
  return (n + shard.size - 1) / shard.size;
}

Range share_of(const Shard& shard, std::int64_t n, int copies) {
  const Shard parts{.rank = shard.rank / copies, .size = shard.size / copies};
  const std::int64_t width = widest_share(parts, n);
  return {std::min(n, parts.rank * width), std::min(n, (parts.rank + 1) * width)};
}

Range share_of_units(const Shard& shard, const std::string& what, std::int64_t n,
                     std::int64_t unit) {
  const std::int64_t units = n / unit;
  if (shard.whole()) return {0, n};
  if (n % unit != 0 || units < shard.size)
    refuse_shares(shard, what + " is " + std::to_string(n) + ", in whole units of " +
                             std::to_string(unit));
  const auto begin_of = [&](std::int64_t rank) {
    return (units * rank + shard.size - 1) / shard.size * unit;
  };
  return {begin_of(shard.rank), begin_of(shard.rank + 1)};
}

void refuse_shares(const Shard& shard, const std::string& why) {
  throw Failure(Error{ErrorCode::unsupported,
                      std::string(kTensorParallelSize) + " " + std::to_string(shard.size) + ": " +
                          why + ", which so many ranks cannot share",
                      kTensorParallelSize});
}

void check_divides(const Shard& shard, const std::string& what, std::int64_t n) {
  if (n % shard.size == 0) return;
  refuse_shares(shard, what + " is " + std::to_string(n));
}

void check_heads(const Shard& shard, const std::string& name, int heads, int kv_heads,
                 const HeadKinds& kinds) {
  const int size = shard.size;
  if (heads % size == 0 && (kv_heads % size == 0 || size % kv_heads == 0)) return;
  refuse_shares(shard, name + " has " + std::to_string(heads) + " " + kinds.many + " and " +
                           std::to_string(kv_heads) + " " + kinds.few);
}

std::vector<std::int64_t> own_of(const Shard& shard, std::int64_t n, int copies) {
  return shard.whole() ? std::vector<std::int64_t>() : rows_of(share_of(shard, n, copies));
}

std::vector<std::int64_t> rows_of(const Range& range) {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(range.size()));
  std::iota(rows.begin(), rows.end(), range.begin);
  return rows;
}

std::vector<Range> ranges_of(const std::vector<std::int64_t>& rows) {
  std::vector<Range> ranges;
  for (const std::int64_t row : rows) {
    if (ranges.empty() || ranges.back().end != row) ranges.push_back({row, row});
    ++ranges.back().end;
  }
  return ranges;
}

}  // namespace quire
