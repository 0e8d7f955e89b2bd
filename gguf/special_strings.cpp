#include "gguf/special_strings.h"

#include "base/log.h"

namespace quire::gguf {

namespace {

struct Name {
  const char* key;
  const char* published;
  const char* needed_by = nullptr;  // metadata that is true; null: it is nobody's but templates'
  bool by_default = false;          // where that is not said
};

}  // namespace

std::map<std::string, std::string, std::less<>> special_strings(const Metadata& metadata) {
  constexpr Name kNames[] = {
      {"tokenizer.ggml.bos_token_id", "bos_token", "tokenizer.ggml.add_bos_token", true},
      {"tokenizer.ggml.eos_token_id", "eos_token", "tokenizer.ggml.add_eos_token"},
      {"tokenizer.ggml.unknown_token_id", "unk_token"},
      {"tokenizer.ggml.padding_token_id", "pad_token"},
      {"tokenizer.ggml.seperator_token_id", "sep_token"},  // as the format spells it
  };
  const auto tokens = metadata.texts("tokenizer.ggml.tokens");
  const auto count = static_cast<std::int64_t>(tokens.size());
  std::map<std::string, std::string, std::less<>> strings;
  for (const Name& name : kNames) {
    const auto id = metadata.integer(name.key, {-1, 0xffffffff});
    if (!id) continue;
    if (*id >= 0 && *id < count) {
      strings.emplace(name.published, tokens[static_cast<std::size_t>(*id)]);
      continue;
    }
    const std::string problem = "is " + std::to_string(*id) + ", and the vocabulary has " +
                                std::to_string(count) + " tokens";
    if (name.needed_by != nullptr && metadata.boolean(name.needed_by).value_or(name.by_default)) {
      metadata.fail(name.key, problem + "; " + name.needed_by + " needs it");
    }
    log::warn("a token id of the model's file is left out",
              {{"file", metadata.file().string()}, {"key", name.key}, {"because", problem}});
  }
  return strings;
}

}  // namespace quire::gguf
