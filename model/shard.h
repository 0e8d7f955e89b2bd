#pragma once
// One rank's share of a model: ranks divide heads, inner sizes and the vocabulary evenly and in
// order. Which of a layer's matrices are divided by rows and which by columns is that layer's to
// say (LinearSplit); what cannot be divided is refused.

#include <cstdint>
#include <string>
#include <vector>

namespace quire {

struct Shard {
  int rank = 0;
  int size = 1;  // ranks; 1: the model is whole

  bool whole() const { return size == 1; }
  friend bool operator==(const Shard&, const Shard&) = default;
};

struct Range {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
};

// The rank's part of n; where n does not divide, the last ranks have less. `copies` neighbouring
// ranks have the same part.
Range share_of(const Shard& shard, std::int64_t n, int copies = 1);
// The widest part.
std::int64_t widest_share(const Shard& shard, std::int64_t n);

// Throws Failure, naming the sizes that work, unless ranks can have equal parts of all these.
void check_divides(const Shard& shard, const std::string& what, std::int64_t n);
// Of query heads and key heads; fewer key heads than ranks are copied, so that each rank has the one
// that its query heads read.
void check_heads(const Shard& shard, const std::string& name, int heads, int kv_heads);
// Throws Failure unless the model is whole.
void refuse_shard(const Shard& shard, const std::string& what);

std::vector<std::int64_t> rows_of(const Range& range);

}  // namespace quire
