#pragma once
// The tools of OpenAI's Responses API as functions, which is what the model calls; only
// openapi/*.cpp include it.

#include <string>
#include <string_view>

#include "openapi/json_reader.h"
#include "openapi/responses.h"

namespace quire::openapi {

// Functions as they are; those of a namespace under its name and their own; a custom tool, which
// takes text, as a function of one string. What the service itself would run is not offered.
bool read_response_tools(JsonReader& reader, JsonElement element, ResponsesRequest& out);

// tool_choice may name a function of a namespace by its own name, where that is the only one.
void resolve_tool_names(ResponsesRequest& request);

// As the model knows a function of a namespace; of none, its name.
std::string function_name(std::string_view name_space, std::string_view name);

// The text that a custom tool is called with, as the arguments of its function.
std::string arguments_of_text(std::string_view text);

}  // namespace quire::openapi
