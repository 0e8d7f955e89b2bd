// A GGUF file's header: no tensor lies outside of the file.

#include <limits>

#include "base/error.h"
#include "gguf/archive.h"
#include "tests/fuzz/targets.h"

namespace quire::fuzz {

void gguf(std::string_view bytes) {
  try {
    const quire::gguf::Header header = quire::gguf::parse_header(bytes, "fuzz");
    for (const auto& tensor : header.tensors)
      promise(tensor.begin + tensor.bytes <= bytes.size(), "a tensor lies in its file");
    constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min(),
                           kMost = std::numeric_limits<std::int64_t>::max();
    header.metadata.texts("w");
    header.metadata.integers("l", {kLeast, kMost});
    header.metadata.texts("tokenizer.ggml.tokens");
    header.metadata.numbers("tokenizer.ggml.scores");
  } catch (const Failure&) {
  }
}

}  // namespace quire::fuzz
