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
bool read_blocks_of_text(JsonReader& reader, JsonElement element, std::optional<std::string>& out);

// The same, of an instruction: without blocks that are empty, or Claude Code's own, which has a
// number of each request, after which no prefix would be found again.
bool read_instruction(JsonReader& reader, JsonElement element, std::optional<std::string>& out);

// Turns of one role in a row become one message; each tool_result a message of its own.
bool read_turns(JsonReader& reader, JsonElement element, std::vector<ChatMessage>& out);

}  // namespace quire::openapi
