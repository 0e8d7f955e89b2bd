#pragma once
// Loops over a tensor's rows on all cores while a model is loaded, before any step runs.

#include <cstdint>
#include <functional>

namespace quire {

// body(begin, end) over pieces of [0, count) that begin at multiples of `grain`; returns when all are
// done. What a piece throws is thrown again here, of several the one of the first rows.
void for_rows_in_parallel(std::int64_t count, std::int64_t grain,
                          const std::function<void(std::int64_t, std::int64_t)>& body);

}  // namespace quire
