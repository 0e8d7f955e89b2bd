#pragma once
// What of a conversation a chat template has written into the prompt.

#include <string_view>
#include <vector>

namespace quire {

// Whether the texts stand in the prompt, one behind the other, but for blanks around each; in time
// that grows with their sizes alone.
bool are_shown(std::string_view prompt, const std::vector<std::string_view>& texts);

}  // namespace quire
