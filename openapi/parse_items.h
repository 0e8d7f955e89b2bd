#pragma once
// The input of OpenAI's Responses API as messages of a chat; only openapi/*.cpp include it.

#include <vector>

#include "openapi/dto.h"
#include "openapi/json_reader.h"

namespace quire::openapi {

// A text, or items. Thoughts, text and calls of the assistant in a row are one message.
bool read_input(JsonReader& reader, JsonElement element, std::vector<ChatMessage>& out);

}  // namespace quire::openapi
