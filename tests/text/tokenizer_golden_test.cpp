#include <catch2/catch.hpp>

#include "tests/text/tokenizer_golden.h"
#include "text/tokenizer/detokenizer.h"
#include "text/tokenizer/tokenizer.h"

namespace quire {
namespace {

using testing::ExpectedText;

std::string streamed(const Tokenizer& tokenizer, const std::vector<TokenId>& ids, bool skip,
                     const std::vector<TokenId>& prompt_ids = {}) {
  Detokenizer detokenizer(tokenizer, skip, prompt_ids);
  std::string text;
  for (const TokenId id : ids) text += detokenizer.push(id);
  return text += detokenizer.finish();
}

void check_encoding(const Tokenizer& tokenizer, const testing::EncodeCase& test) {
  INFO(test.name);
  const auto ids = tokenizer.encode(test.text, /*add_special_tokens=*/false);
  CHECK(test.ids.is(ids));
  CHECK(test.ids_special.is(tokenizer.encode(test.text, /*add_special_tokens=*/true)));
  CHECK(test.decoded.is(tokenizer.decode(ids, /*skip_special_tokens=*/false)));
  CHECK(test.decoded_skip.is(tokenizer.decode(ids, /*skip_special_tokens=*/true)));
}

void check_decoding(const Tokenizer& tokenizer, const testing::DecodeCase& test, bool skip,
                    const ExpectedText& decoded, const ExpectedText& continuation) {
  INFO(test.name << (skip ? " without special tokens" : ""));
  CHECK(decoded.is(tokenizer.decode(test.ids, skip)));
  CHECK(decoded.is(streamed(tokenizer, test.ids, skip)));
  if (continuation.given()) {
    CHECK(continuation.is(streamed(tokenizer, test.ids, skip, test.prompt_ids)));
  }
}

TEST_CASE("every tokenizer answers as the library does", "[text][tokenizer]") {
  const auto folders = testing::tokenizer_folders();
  REQUIRE_FALSE(folders.empty());
  for (const auto& folder : folders) {
    INFO(folder);
    const auto tokenizer = Tokenizer::load(folder);
    const auto encodings = testing::encode_cases(folder);
    const auto decodings = testing::decode_cases(folder);
    REQUIRE_FALSE(encodings.empty());
    REQUIRE_FALSE(decodings.empty());
    for (const auto& test : encodings) check_encoding(*tokenizer, test);
    for (const auto& test : decodings) {
      check_decoding(*tokenizer, test, false, test.decoded, test.continuation);
      check_decoding(*tokenizer, test, true, test.decoded_skip, test.continuation_skip);
    }
  }
}

}  // namespace
}  // namespace quire
