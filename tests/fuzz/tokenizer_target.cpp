// tokenizer.json: refused, or a tokenizer that takes any text and gives UTF-8 back.

#include <simdjson.h>

#include <cstring>

#include "base/error.h"
#include "tests/fuzz/targets.h"
#include "text/tokenizer/detokenizer.h"
#include "text/tokenizer/tokenizer.h"

namespace quire::fuzz {

namespace {

constexpr std::string_view kTexts[] = {
    "Hello, world! It's 1234\n\n  ﬁne é 中文 <s>word</s> <mask>",
    "a\xFF\xC3 b\0c",
    " \t\u3000",
};

}  // namespace

void tokenizer(std::string_view bytes) {
  try {
    const auto tokenizer = Tokenizer::parse(bytes);
    for (const std::string_view text : kTexts) {
      const auto ids = tokenizer->encode(text, /*add_special_tokens=*/true);
      Detokenizer detokenizer(*tokenizer, /*skip_special_tokens=*/false, ids);
      std::string decoded = detokenizer.push(ids);
      decoded += detokenizer.finish();
      promise(simdjson::validate_utf8(decoded), "decoded text is UTF-8");
    }
  } catch (const Failure& failure) {
    promise(std::strlen(failure.what()) > 0, "a refusal says why");
  }
}

}  // namespace quire::fuzz
