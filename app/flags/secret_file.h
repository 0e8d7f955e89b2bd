#pragma once
// The secret that engines and their front ends share.

#include <string>

#include "base/result.h"

namespace quire {

// The file's text without the blanks around it; at least 16 bytes. An empty path: an empty secret.
Result<std::string> read_secret(const std::string& path);

}  // namespace quire
