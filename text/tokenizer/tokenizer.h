#pragma once
// A model's tokenizer: text to ids and back, as the Rust library `tokenizers` answers for the same
// tokenizer.json, quirks included. Once loaded it changes nothing but a cache that no answer depends on; any number
// of threads may use it at once.

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "text/tokenizer/segment_cache.h"

namespace quire {

class Tokenizer {
 public:
  // Reads tokenizer.json and, if it is there, tokenizer_config.json and special_tokens_map.json; or
  // a GGUF file.
  // Throws Failure naming file and field.
  static std::unique_ptr<Tokenizer> load(const std::filesystem::path& model_dir,
                                         std::size_t cache_bytes = SegmentCache::kMaxBytes);
  // From the content of a tokenizer.json alone; otherwise the same.
  static std::unique_ptr<Tokenizer> parse(std::string_view tokenizer_json);
  ~Tokenizer();

  // Added tokens written in the text are found whether or not special tokens are added around it.
  // Bytes of `text` that are not UTF-8 count as U+FFFD, one for each maximal invalid part.
  std::vector<TokenId> encode(std::string_view text, bool add_special_tokens) const;

  // Two texts as one input, with the special tokens that the model wants between and around them.
  struct Pair {
    std::vector<TokenId> ids;
    int second = 0;  // where the second text begins
  };
  Pair encode_pair(std::string_view first, std::string_view second, bool add_special_tokens) const;

  // Always valid UTF-8. Ids outside of the vocabulary are skipped.
  std::string decode(std::span<const TokenId> ids, bool skip_special_tokens) const;

  int vocab_size() const;  // highest id + 1, added tokens included
  std::optional<TokenId> token_to_id(std::string_view token) const;
  std::string_view id_to_token(TokenId id) const;  // as the vocabulary spells it; empty: no such id
  // The bytes that the token adds to a text, where that does not depend on its neighbours: "Ġa" is
  // " a", "<0x0A>" is "\n". Maybe part of a character. Empty for an id outside of the vocabulary.
  std::string token_bytes(TokenId id) const;
  bool is_special(TokenId id) const;  // what skip_special_tokens leaves out

  // Named tokens of the configuration files, "bos_token" → "<s>": what a chat template may use.
  const std::map<std::string, std::string, std::less<>>& special_strings() const;

  struct Parts;
  explicit Tokenizer(std::unique_ptr<const Parts> parts,  // use load()
                     std::size_t cache_bytes = SegmentCache::kMaxBytes);

 private:
  friend class Detokenizer;
  std::vector<TokenId> encode_plain(std::string_view text) const;

  std::unique_ptr<const Parts> parts_;
  mutable SegmentCache cache_;  // of texts between added tokens
};

}  // namespace quire
