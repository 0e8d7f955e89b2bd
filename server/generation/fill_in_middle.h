#pragma once
// A text whose middle is missing, as models were taught to see it: prefix and suffix between special
// tokens. Which ones, the tokenizer shows.

#include <optional>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "text/tokenizer/tokenizer.h"

namespace quire {

// Unset where the tokenizer has no such tokens. The tokens that a text begins with come first where
// `add_special_tokens` is set.
std::optional<std::vector<TokenId>> fill_in_middle(const Tokenizer& tokenizer,
                                                   std::string_view prefix, std::string_view suffix,
                                                   bool add_special_tokens);

}  // namespace quire
