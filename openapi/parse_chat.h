#pragma once
// Messages and their parts; only openapi/*.cpp include it.

#include "openapi/dto.h"
#include "openapi/json_reader.h"

namespace quire::openapi {

bool read(JsonReader& reader, JsonElement element, ChatMessage& out);
bool read_chat_members(JsonReader& reader, simdjson::dom::object object,
                       ChatCompletionRequest& out);

// What a message is made of: a string or parts of text.
bool read_content(JsonReader& reader, JsonElement element, ChatMessage& out);
bool read_role(JsonReader& reader, JsonElement element, ChatMessage& out);

// What members of a chat request mean together.
bool check_chat(JsonReader& reader, const ChatCompletionRequest& chat);

}  // namespace quire::openapi
