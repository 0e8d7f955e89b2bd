#pragma once
// How a byte-level tokenizer cuts a text into words: a GGUF file only names it (tokenizer.ggml.pre);
// here is what the names stand for, as the tokenizer.json of the models they were given to say it.

#include <string>
#include <string_view>
#include <vector>

#include "gguf/metadata.h"

namespace quire {

struct GgufWords {
  std::vector<std::string_view> names;
  std::vector<std::string_view> splits;  // expressions, applied one after the other
  bool digits = false;                   // each on its own, before all else
  bool gpt2 = false;                     // then GPT-2's expression
  bool nfc = false;
  bool ignore_merges = false;  // a word that is a token is not cut
  bool adds_bos = false;       // where the file does not say

  std::string pre_tokenizer_json() const;
};

// Throws Failure with the list of what is known.
const GgufWords& gguf_words(const gguf::Metadata& metadata);

}  // namespace quire
