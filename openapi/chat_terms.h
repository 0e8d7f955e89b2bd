#pragma once
// What other APIs say in words of their own, in those of a chat request; only openapi/*.cpp include
// it.

#include <string>
#include <string_view>

#include "openapi/dto.h"
#include "openapi/json_reader.h"

namespace quire::openapi {

// A function that the model may call. `parameters`: JSON text of its schema, may be empty.
struct FunctionTool {
  std::string name{};
  std::string description{};
  std::string parameters{};
  bool strict = false;
};

// False: a dialect could not tell where such a name ends.
bool check_tool_name(JsonReader& reader, std::string_view name);

// Appends it to chat.tools. The name must be new and not empty.
bool add_function(JsonReader& reader, const FunctionTool& tool, ChatCompletionRequest& chat);

// An answer that follows the schema, an object, which stands in the request at `place`.
bool want_schema(JsonReader& reader, JsonElement schema, std::string place, GenerationRequest& out);

// {"enable_thinking": …}, under which the templates that know of thinking look for it; what
// chat_template_kwargs says itself wins.
void set_thinking(bool enabled, ChatCompletionRequest& chat);

// Text continues what is already there, on a new line.
void add_text(std::optional<std::string>& to, std::string_view text);

// The type of a block or item; false after a failure.
bool read_type(JsonReader& reader, simdjson::dom::object object, std::string_view& type);
// A member that must be there, a string.
bool read_needed(JsonReader& reader, simdjson::dom::object object, std::string_view name,
                 std::string& out);

bool is_json_object(std::string_view text);

}  // namespace quire::openapi
