#pragma once
// Flags that are not here, of vLLM's and of other servers': what to do instead.

#include <string_view>

namespace quire {

// As an end of a sentence; empty: nothing is known of the flag.
std::string_view advice_instead_of(std::string_view flag);

// A switch of vLLM's for something that is never done here: --no-… of it asks for what happens.
bool is_switch_that_is_off(std::string_view flag);

}  // namespace quire
