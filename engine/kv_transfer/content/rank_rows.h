#pragma once
// What one rank has of a row of keys, values or states: rows travel as those of the whole model, so
// that engines of any two numbers of ranks agree.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/kv_spec.h"
#include "model/shard.h"

namespace quire {

struct RankRow {
  struct Part {
    std::int64_t in_whole = 0, in_own = 0, bytes = 0;
    friend bool operator==(const Part&, const Part&) = default;
  };
  std::int64_t whole_bytes = 0, own_bytes = 0;
  std::vector<Part> parts = {};
  // Other ranks have all that this one has, one before it among them.
  bool is_copy = false;

  // Copy the rank's part into, or out of, `rows` whole rows that lie one behind the other.
  void spread(const std::byte* own, std::byte* whole, int rows) const;
  void pick(const std::byte* whole, std::byte* own, int rows) const;
};

// What a rank has of a row of one plane, or of a state. `own`: what the rank's layer keeps;
// `whole`: the undivided layer.
RankRow rank_row(const KvSpec& whole, const KvSpec& own, const Shard& shard);

}  // namespace quire
