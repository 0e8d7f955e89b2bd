#include <fmt/format.h>

#include <algorithm>

#include "openapi/chat_terms.h"
#include "openapi/parse_chat.h"

namespace quire::openapi {

// Any word: templates know roles of their own, and what none of them knows is refused when it has
// rendered (TextPipeline).
bool read_role(JsonReader& reader, JsonElement element, ChatMessage& out) {
  constexpr std::size_t kLongest = 64;
  if (!read(reader, element, out.role)) return false;
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           c == '_' || c == '-' || c == '.';
  };
  if (!out.role.empty() && out.role.size() <= kLongest && std::ranges::all_of(out.role, is_plain)) {
    return true;
  }
  return reader.fail(fmt::format("\"{}\" is not a role; expected system, developer, user, "
                                 "assistant, tool or a word that the chat template knows",
                                 out.role.substr(0, 40)));
}

namespace {

bool read_part(JsonReader& reader, JsonElement element, std::string& text) {
  simdjson::dom::object part;
  if (element.is_string()) return read(reader, element, text);
  if (element.get(part)) return reader.expected("a string or an object", element);
  std::string_view type = "text";
  if (JsonElement t; !part["type"].get(t) && t.get(type)) {
    return reader.in_member("type", [&] { return reader.expected("a string", t); });
  }
  constexpr std::string_view kTypes[] = {"text", "input_text", "output_text", "refusal",
                                         "thinking"};
  if (std::ranges::find(kTypes, type) == std::end(kTypes)) {
    return reader.in_member("type", [&] {
      return reader.fail(
          fmt::format("\"{}\" is not supported: the model takes text only", type.substr(0, 40)));
    });
  }
  const std::string_view key = type == "refusal" || type == "thinking" ? type : "text";
  JsonElement value;
  if (part[key].get(value)) return reader.fail(fmt::format("{} is missing", key));
  return reader.in_member(key, [&] { return read(reader, value, text); });
}

}  // namespace

bool read_content(JsonReader& reader, JsonElement element, ChatMessage& out) {
  out.content.reset();
  out.part_breaks.clear();
  if (element.is_string()) return read(reader, element, out.content.emplace());
  simdjson::dom::array parts;
  if (element.get(parts)) return reader.expected("a string or an array of parts", element);
  std::size_t i = 0;
  for (const JsonElement part : parts) {
    std::string text;
    if (!reader.in_item(i, [&] { return read_part(reader, part, text); })) return false;
    ++i;
    add_part(out, text);
  }
  return true;
}

namespace {

// OpenAI sends the arguments as JSON text; some clients send the object itself.
bool read_arguments(JsonReader& reader, JsonElement element, FunctionCall& out) {
  if (element.is_string()) return read(reader, element, out.arguments);
  if (!element.is_object()) return reader.expected("a string of JSON", element);
  out.arguments = reader.text(element);
  return true;
}

constexpr std::array kFunctionMembers = {
    JsonMember<FunctionCall>{"name", read_member<&FunctionCall::name>},
    JsonMember<FunctionCall>{"arguments", read_arguments},
};

bool read_function(JsonReader& reader, JsonElement element, ToolCall& out) {
  simdjson::dom::object object;
  if (element.get(object)) return reader.expected("an object", element);
  if (!read_members<FunctionCall>(reader, object, kFunctionMembers, out.function)) return false;
  return !out.function.name.empty() || reader.fail("name is missing");
}

// The form before tool_calls.
bool read_function_call(JsonReader& reader, JsonElement element, ChatMessage& out) {
  return read_function(reader, element, out.tool_calls.emplace_back());
}

constexpr std::array kToolCallMembers = {
    JsonMember<ToolCall>{"id", read_member<&ToolCall::id>},
    JsonMember<ToolCall>{"function", read_function},
};

bool read(JsonReader& reader, JsonElement element, ToolCall& out) {
  simdjson::dom::object object;
  if (element.get(object)) return reader.expected("an object", element);
  if (!read_members<ToolCall>(reader, object, kToolCallMembers, out)) return false;
  return !out.function.name.empty() || reader.fail("function is missing");
}

bool read_tool_calls(JsonReader& reader, JsonElement element, ChatMessage& out) {
  simdjson::dom::array calls;
  if (element.get(calls)) return reader.expected("an array", element);
  std::size_t i = 0;
  for (const JsonElement call : calls) {
    if (!reader.in_item(i++, [&] { return read(reader, call, out.tool_calls.emplace_back()); })) {
      return false;
    }
  }
  return true;
}

constexpr std::array kMembers = {
    JsonMember<ChatMessage>{"role", read_role},
    JsonMember<ChatMessage>{"content", read_content},
    JsonMember<ChatMessage>{"reasoning_content", read_member<&ChatMessage::reasoning>},
    JsonMember<ChatMessage>{"reasoning", read_member<&ChatMessage::reasoning>},
    JsonMember<ChatMessage>{"name", read_member<&ChatMessage::name>},
    JsonMember<ChatMessage>{"tool_call_id", read_member<&ChatMessage::tool_call_id>},
    JsonMember<ChatMessage>{"tool_calls", read_tool_calls},
    JsonMember<ChatMessage>{"function_call", read_function_call},
};

}  // namespace

bool read(JsonReader& reader, JsonElement element, ChatMessage& out) {
  simdjson::dom::object object;
  if (element.get(object)) return reader.expected("an object", element);
  if (!read_members<ChatMessage>(reader, object, kMembers, out)) return false;
  if (out.role.empty()) return reader.fail("role is missing");
  if (out.role == "function") out.role = "tool";  // what answered a function_call
  // A tool may have nothing to say, and clients of those that return nothing send null.
  const bool may_be_empty = out.role == "assistant" || out.role == "tool";
  // A list of no parts says nothing, too, but was sent.
  if (!out.content && !may_be_empty && !object["content"].is_array())
    return reader.fail("content is missing");
  return true;
}

}  // namespace quire::openapi
