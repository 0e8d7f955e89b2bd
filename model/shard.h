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
  friend bool operator==(const Range&, const Range&) = default;
};

// The rank's part of n; where n does not divide, the last ranks have less. `copies` neighbouring
// ranks have the same part.
Range share_of(const Shard& shard, std::int64_t n, int copies = 1);
// The widest part.
std::int64_t widest_share(const Shard& shard, std::int64_t n);
// The rank's part of n in whole units of so many, as even as they go; rank 0's is one of the widest.
// Throws Failure where there are fewer units than ranks.
Range share_of_units(const Shard& shard, const std::string& what, std::int64_t n, std::int64_t unit);

// Field of the Failure of all that cannot be divided; load_model adds which sizes the whole model can
// be divided by.
inline constexpr const char* kTensorParallelSize = "ParallelConfig::tensor_parallel_size";

// Throws Failure unless ranks can have equal parts of all these.
void check_divides(const Shard& shard, const std::string& what, std::int64_t n);
// Of query heads and key heads, or what a layer calls its many and its few; fewer key heads than ranks
// are copied, so that each rank has the one that its query heads read.
struct HeadKinds {
  const char* many = "query heads";
  const char* few = "key heads";
};
void check_heads(const Shard& shard, const std::string& name, int heads, int kv_heads,
                 const HeadKinds& kinds = {});
[[noreturn]] void refuse_shares(const Shard& shard, const std::string& why);

std::vector<std::int64_t> rows_of(const Range& range);
// The other way: numbers that follow each other, together.
std::vector<Range> ranges_of(const std::vector<std::int64_t>& rows);
// rows_of(share_of()), and nothing of a whole model, whose tensors are loaded as they are.
std::vector<std::int64_t> own_of(const Shard& shard, std::int64_t n, int copies = 1);

}  // namespace quire
