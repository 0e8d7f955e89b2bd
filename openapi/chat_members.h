#pragma once
// The members of a chat request by name, for who writes one by hand.

#include <string_view>
#include <vector>

namespace quire::openapi {

std::vector<std::string_view> chat_members();

}  // namespace quire::openapi
