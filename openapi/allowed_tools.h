#pragma once
// tool_choice of type allowed_tools, as OpenAI's chat and responses have it: auto or required, of
// some of the tools alone, while the prompt shows all of them. Only openapi/*.cpp include it.

#include <cstdint>

#include "openapi/dto.h"
#include "openapi/json_reader.h"

namespace quire::openapi {

// Chat has the list in a member of its own, and a tool's name in its function.
enum class AllowedToolsForm : std::uint8_t { chat, responses };

// Of the object that has mode and tools.
bool read_allowed_tools(JsonReader& reader, simdjson::dom::object allowed,
                        AllowedToolsForm form, ChatCompletionRequest& out);
// They are among the tools, if there are any.
bool check_allowed_tools(JsonReader& reader, const ChatCompletionRequest& chat,
                         AllowedToolsForm form);

}  // namespace quire::openapi
