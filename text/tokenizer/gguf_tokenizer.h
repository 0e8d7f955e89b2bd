#pragma once
// The tokenizer of a GGUF file as the tokenizer.json that it was made of: one loader reads both.

#include <filesystem>
#include <string>

#include "gguf/metadata.h"
#include "text/tokenizer/tokenizer_config.h"

namespace quire {

struct GgufTokenizer {
  std::string json;  // a whole tokenizer.json but for added_tokens
  TokenizerConfig config;
};

// Throws Failure naming file and key for a kind of tokenizer or a way to cut words that is not
// known, and for tokens that are not UTF-8.
GgufTokenizer read_gguf_tokenizer(const gguf::Metadata& metadata);

}  // namespace quire
