#pragma once
// For a 404: which path was probably meant.

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace quire {

// Undoes what base URLs and hands get wrong: a missing or doubled /v1, a trailing or doubled slash,
// other case, a slip of the finger. Unset: no known path is near.
std::optional<std::string> path_hint(std::string_view path,
                                     std::span<const std::string_view> known);

}  // namespace quire
