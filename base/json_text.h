#pragma once
// JSON as text, for code that writes a document which base/json.h reads.

#include <string>
#include <string_view>

namespace quire {

// `text` in quotes, escaped where JSON asks for it; bytes that are not UTF-8 stay as they are.
void append_json_text(std::string& out, std::string_view text);

}  // namespace quire
