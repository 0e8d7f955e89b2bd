#pragma once
// What other APIs say in words of their own, in those of a chat request; only openapi/*.cpp include
// it.

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "openapi/dto.h"
#include "openapi/json_reader.h"

namespace quire::openapi {

// A function that the model may call. `parameters`: JSON text of its schema, may be empty.
struct FunctionTool {
  std::string name{};
  std::string description{};
  std::string parameters{};
  bool strict = false;
  std::string input_grammar{};  // of a custom tool, in words; empty: any text
  // Of Anthropic's; what templates may show.
  bool defer_loading = false;
  std::string input_examples{};  // JSON; empty: none
};

// Of a function, new among `names`. False, too, where a dialect could not tell where it ends.
bool add_tool_name(JsonReader& reader, std::string_view name, ToolNames& names);

// What tool_choice names, at `place` below it, is one of the tools, if there are any.
bool check_named_tool(JsonReader& reader, const ChatCompletionRequest& chat,
                      std::initializer_list<std::string_view> place);

// Appends it to chat.tools. The name must be new and not empty.
bool add_function(JsonReader& reader, const FunctionTool& tool, ChatCompletionRequest& chat);

// An answer that follows the schema, an object.
bool want_schema(JsonReader& reader, JsonElement schema, GenerationRequest& out);

// How much the model should think: none, minimal, low, medium, high, xhigh or max.
bool read_effort(JsonReader& reader, JsonElement element, ChatCompletionRequest& out);

// {"enable_thinking": …}, under which the templates that know of thinking look for it; what
// chat_template_kwargs says itself wins.
void set_thinking(bool enabled, ChatCompletionRequest& chat);

// Text continues what is already there, on a new line.
void add_text(std::optional<std::string>& to, std::string_view text);

// The same, of a message: a further part of what it says.
void add_part(ChatMessage& to, std::string_view text);

// The type of a block or item; false after a failure.
bool read_type(JsonReader& reader, simdjson::dom::object object, std::string_view& type);
// A member that must be there, a string.
bool read_needed(JsonReader& reader, simdjson::dom::object object, std::string_view name,
                 std::string& out);

bool is_json_object(std::string_view text);

}  // namespace quire::openapi
