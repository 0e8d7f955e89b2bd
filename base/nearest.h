#pragma once
// "Did you mean …": the candidate that a mistyped word is closest to.

#include <optional>
#include <span>
#include <string_view>

namespace quire {

// The fewest letters to put in, take out, exchange or swap with a neighbour; unset: none is near
// enough to be what was meant. Among equals the first.
std::optional<std::string_view> nearest(std::string_view word,
                                        std::span<const std::string_view> candidates);

}  // namespace quire
