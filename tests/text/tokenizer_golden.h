#pragma once
// Recorded answers of the Rust library: tests/data/golden/tokenizers, or all of
// $QUIRE_GOLDEN_DIR/tokenizers.

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"

namespace quire::testing {

// A text or its 64-bit FNV-1a.
struct ExpectedText {
  std::optional<std::string> text;
  std::string hash;
  bool given() const { return text || !hash.empty(); }
  bool is(std::string_view actual) const;
};

struct ExpectedIds {
  std::optional<std::vector<TokenId>> ids;
  std::size_t count = 0;
  std::string hash;
  bool is(const std::vector<TokenId>& actual) const;
};

struct EncodeCase {
  std::string name;
  std::string text;
  ExpectedIds ids, ids_special;
  ExpectedText decoded, decoded_skip;  // of `ids`
};

struct DecodeCase {
  std::string name;
  std::vector<TokenId> ids, prompt_ids;
  ExpectedText decoded, decoded_skip;
  ExpectedText continuation, continuation_skip;  // not given where there is none
};

std::vector<std::filesystem::path> tokenizer_folders();
std::vector<EncodeCase> encode_cases(const std::filesystem::path& folder);
std::vector<DecodeCase> decode_cases(const std::filesystem::path& folder);

}  // namespace quire::testing
