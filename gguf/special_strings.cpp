#include "gguf/special_strings.h"

#include <utility>

namespace quire::gguf {

std::map<std::string, std::string, std::less<>> special_strings(const Metadata& metadata) {
  constexpr std::pair<const char*, const char*> kNames[] = {
      {"tokenizer.ggml.bos_token_id", "bos_token"},
      {"tokenizer.ggml.eos_token_id", "eos_token"},
      {"tokenizer.ggml.unknown_token_id", "unk_token"},
      {"tokenizer.ggml.padding_token_id", "pad_token"},
      {"tokenizer.ggml.seperator_token_id", "sep_token"},  // as the format spells it
  };
  const auto tokens = metadata.texts("tokenizer.ggml.tokens");
  std::map<std::string, std::string, std::less<>> strings;
  for (const auto& [key, name] : kNames) {
    const auto id = metadata.integer(key, {0, static_cast<std::int64_t>(tokens.size()) - 1});
    if (id) strings.emplace(name, tokens[static_cast<std::size_t>(*id)]);
  }
  return strings;
}

}  // namespace quire::gguf
