#pragma once
// The names of a chat request's members, for programs whose users write them by hand.

#include <string_view>
#include <vector>

namespace quire::openapi {

std::vector<std::string_view> chat_members();

}  // namespace quire::openapi
