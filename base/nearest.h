#pragma once
// "Did you mean …": the candidate that a mistyped or shortened word is closest to.

#include <optional>
#include <span>
#include <string_view>

namespace quire {

// The only candidate that begins with the word; else the one with the fewest letters to put in, take
// out, exchange or swap with a neighbour, among equals the first. Unset: none is near enough to be
// what was meant.
std::optional<std::string_view> nearest(std::string_view word,
                                        std::span<const std::string_view> candidates);

}  // namespace quire
