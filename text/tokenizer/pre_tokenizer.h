#pragma once
// Cuts a text into the words that the model sees. Immutable; any number of threads may use one at
// once.

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/token_model.h"

namespace quire {

class Json;

// A text under way: its words, and the text they lie in, which a step may rewrite. Words are not
// empty.
struct PreTokenized {
  std::string_view text;  // the caller's, or `rewritten`
  std::string rewritten;
  std::vector<Piece> words;
  bool starts_input = false;  // the first word begins where the whole input begins

  void rewrite(std::string text_of_words, std::vector<Piece> new_words);
};

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void apply(PreTokenized& text) const = 0;
};

// The steps in order, sequences flattened. With `plain_bytes` the last step, which must be a
// ByteLevel, leaves the bytes as they are instead of spelling them in its alphabet. With
// `prefix_space` that is what every ByteLevel's add_prefix_space is.
std::vector<std::unique_ptr<PreTokenizer>> load_pre_tokenizers(
    const Json& field, bool plain_bytes, std::optional<bool> prefix_space = {});
bool ends_in_byte_level(const Json& field);

}  // namespace quire
