#pragma once
// The tokens that a chat template may name.

#include <map>
#include <string>

#include "gguf/metadata.h"

namespace quire::gguf {

// "bos_token" → "<s>" and the like.
std::map<std::string, std::string, std::less<>> special_strings(const Metadata& metadata);

}  // namespace quire::gguf
