#pragma once
// Where in a JSON text the first number is that no 64-bit integer and no double can hold.

#include <optional>
#include <string>
#include <string_view>

namespace quire::openapi {

// The path of its member, as in stop_token_ids[2], for texts that are JSON but for such numbers.
// nullopt: none is found. Any bytes may come.
std::optional<std::string> place_of_unfit_number(std::string_view json);

}  // namespace quire::openapi
