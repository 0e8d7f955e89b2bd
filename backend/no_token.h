#pragma once
// What Ops::sample() writes for a row that nothing can be drawn from: one of its logits is NaN or
// +inf. Operators that read drawn tokens pass over it (count_tokens) or read row 0 (embedding,
// log_probs): a step in flight may have it among its ids until the host ends the request.

#include <cstdint>

namespace quire {

inline constexpr std::int32_t kNoToken = -1;

}  // namespace quire
