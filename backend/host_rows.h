#pragma once

#include <cstdint>
#include <span>

namespace quire {

// What the host knows of the step's requests, of one whose drafts are not settled at most.
struct HostRows {
  std::span<const std::int32_t> query_start;  // [R + 1]
  std::span<const std::int32_t> seq_lens;     // [R]
};

}  // namespace quire
