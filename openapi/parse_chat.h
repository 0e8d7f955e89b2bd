#pragma once
// Messages and their parts; only openapi/*.cpp include it.

#include "openapi/dto.h"
#include "openapi/json_reader.h"

namespace quire::openapi {

bool read(JsonReader& reader, JsonElement element, ChatMessage& out);
bool read_chat_members(JsonReader& reader, simdjson::dom::object object,
                       ChatCompletionRequest& out);

}  // namespace quire::openapi
