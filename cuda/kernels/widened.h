#pragma once
// Of a step's requests those whose fp8 keys and values are widened to pages of the queries' dtype
// before they are attended to: what a launch of attention_widen.cu and the one of
// attention_wgmma.cu behind it are given.

#include <cstdint>

namespace quire::cuda {

constexpr int kWidenedKeys = 128;     // of a page: a tile's, or two tiles'
constexpr int kWidenedRows = 128;     // of a unit, which is a block of attention_wgmma
constexpr int kWidenedRequests = 64;  // of a launch

struct WidenedRequest {
  // Its first page is that of the first key that any of its rows sees; others follow.
  std::int32_t request, first_page;
};

struct WidenedRequests {
  int count = 0;
  int units = 0;                             // of all of them: blocks of rows, for each KV head
  std::int64_t pages = 0;                    // likewise
  WidenedRequest at[kWidenedRequests] = {};  // first pages ascend
};

}  // namespace quire::cuda
