#pragma once
// The conversation of Anthropic's Messages API as messages of a chat; only openapi/*.cpp include
// it.

#include <optional>
#include <string>
#include <vector>

#include "openapi/dto.h"
#include "openapi/json_reader.h"

namespace quire::openapi {

// A string or text blocks.
// left_out: how blocks begin that do not count.
bool read_blocks_of_text(JsonReader& reader, JsonElement element, std::optional<std::string>& out,
                         std::string_view left_out = {});

// Turns of one role in a row become one message; each tool_result a message of its own.
bool read_turns(JsonReader& reader, JsonElement element, std::vector<ChatMessage>& out);

}  // namespace quire::openapi
