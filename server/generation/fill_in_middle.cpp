#include "server/generation/fill_in_middle.h"

#include <array>

namespace quire {

namespace {

// first PREFIX second SUFFIX third, or with the suffix before the prefix. The last may be empty.
struct Format {
  std::array<std::string_view, 3> tokens;
  bool suffix_first = false;
};

constexpr Format kFormats[] = {
    {{"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"}},     // Qwen Coder, CodeGemma
    {{"<fim_prefix>", "<fim_suffix>", "<fim_middle>"}},           // StarCoder, Granite Code
    {{"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"}},     // DeepSeek Coder and V3
    {{"▁<PRE>", "▁<SUF>", "▁<MID>"}},                             // Code Llama
    {{"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"}},  // GLM-4
    {{"[SUFFIX]", "[PREFIX]", ""}, true},                         // Codestral
};

// The ids of all of the format's tokens; unset: one is not there.
std::optional<std::array<TokenId, 3>> ids_of(const Format& format, const Tokenizer& tokenizer) {
  std::array<TokenId, 3> ids{};
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (format.tokens[i].empty()) continue;
    const auto id = tokenizer.token_to_id(format.tokens[i]);
    if (!id) return std::nullopt;
    ids[i] = *id;
  }
  return ids;
}

}  // namespace

std::optional<std::vector<TokenId>> fill_in_middle(const Tokenizer& tokenizer,
                                                   std::string_view prefix, std::string_view suffix,
                                                   bool add_special_tokens) {
  for (const Format& format : kFormats) {
    const auto ids = ids_of(format, tokenizer);
    if (!ids) continue;
    auto out = tokenizer.encode("", add_special_tokens);
    const auto append = [&](TokenId before, std::string_view text) {
      out.push_back(before);
      const auto more = tokenizer.encode(text, false);
      out.insert(out.end(), more.begin(), more.end());
    };
    append((*ids)[0], format.suffix_first ? suffix : prefix);
    append((*ids)[1], format.suffix_first ? prefix : suffix);
    if (!format.tokens[2].empty()) out.push_back((*ids)[2]);
    return out;
  }
  return std::nullopt;
}

}  // namespace quire
