#pragma once
// What stands beside tokenizer.json: the tokens' names, tokens added later, and whether the
// tokenizer's class puts an end token around a text. As Hugging Face's classes read it.

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "text/tokenizer/added_tokens.h"

namespace quire {

struct TokenizerConfig {
  std::map<std::string, std::string, std::less<>> special_strings;  // "bos_token" and the like
  // By index, then those that have a name; those of tokenizer.json among them.
  std::vector<AddedToken> added;
  // Set where the class builds these ends itself, whatever tokenizer.json says.
  struct Ends {
    bool bos = true;
    bool eos = false;
  };
  std::optional<Ends> ends;
  // Set where the class sets add_prefix_space of its byte-level step, whatever tokenizer.json says.
  std::optional<bool> prefix_space;
};

// Of tokenizer_config.json and, where that has no added_tokens_decoder, of the older
// special_tokens_map.json, whose names win, and added_tokens.json. All may be absent.
TokenizerConfig read_tokenizer_config(const std::filesystem::path& model_dir);

}  // namespace quire
