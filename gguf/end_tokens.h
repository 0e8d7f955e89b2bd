#pragma once
// The tokens that end a turn. Converters write one of them into the metadata, often not the one
// that a chat ends with; the others are known by their texts, as llama.cpp finds them.

#include <cstdint>
#include <vector>

#include "gguf/metadata.h"

namespace quire::gguf {

// Each once, those that the metadata name first. An id that is no token's is left out.
std::vector<std::int64_t> end_tokens(const Metadata& metadata);

}  // namespace quire::gguf
