#include "openapi/parse_items.h"

#include <fmt/format.h>

#include <algorithm>

#include "openapi/chat_terms.h"
#include "openapi/parse_chat.h"
#include "openapi/response_tools.h"

namespace quire::openapi {

namespace {

using simdjson::dom::object;
using Messages = std::vector<ChatMessage>;

bool read_content_of(JsonReader& reader, object item, std::string_view name, ChatMessage& out) {
  JsonElement content;
  if (item[name].get(content)) return reader.fail(fmt::format("{} is missing", name));
  return reader.in_member(name, [&] { return read_content(reader, content, out); });
}

bool is_bare_thought(const ChatMessage& message) {
  return message.role == "assistant" && !message.content && message.tool_calls.empty();
}

bool read_message(JsonReader& reader, object item, Messages& out) {
  ChatMessage message;
  JsonElement role;
  if (item["role"].get(role)) return reader.fail("role is missing");
  if (!reader.in_member("role", [&] { return read_role(reader, role, message); })) return false;
  constexpr std::string_view kRoles[] = {"user", "assistant", "system", "developer"};
  if (std::ranges::find(kRoles, message.role) == std::end(kRoles)) {
    return reader.in_member("role", [&] {
      return reader.fail(fmt::format("\"{}\" is not a role here; expected one of {} (what a tool "
                                     "answers is a function_call_output)",
                                     message.role, fmt::join(kRoles, ", ")));
    });
  }
  if (!read_content_of(reader, item, "content", message)) return false;
  if (message.role == "assistant" && !out.empty() && is_bare_thought(out.back())) {
    out.back().content = std::move(message.content);
    out.back().part_breaks = std::move(message.part_breaks);
  } else {
    out.push_back(std::move(message));
  }
  return true;
}

bool read_call(JsonReader& reader, object item, bool is_custom, Messages& out) {
  ToolCall call;
  std::string name, said;
  if (!read_needed(reader, item, "call_id", call.id)) return false;
  if (!read_needed(reader, item, "name", name)) return false;
  if (!read_needed(reader, item, is_custom ? "input" : "arguments", said)) return false;
  std::string name_space;
  if (JsonElement of; !item["namespace"].get(of) && !of.is_null()) {
    if (!reader.in_member("namespace", [&] { return read(reader, of, name_space); })) return false;
  }
  call.function.name = function_name(name_space, name);
  call.function.arguments = is_custom ? arguments_of_text(said) : std::move(said);
  if (out.empty() || out.back().role != "assistant") out.emplace_back().role = "assistant";
  out.back().tool_calls.push_back(std::move(call));
  return true;
}

bool read_call_output(JsonReader& reader, object item, Messages& out) {
  ChatMessage message;
  message.role = "tool";
  std::string id;
  if (!read_needed(reader, item, "call_id", id)) return false;
  message.tool_call_id = std::move(id);
  if (!read_content_of(reader, item, "output", message)) return false;
  out.push_back(std::move(message));
  return true;
}

bool read_texts(JsonReader& reader, object item, std::string_view name,
                std::optional<std::string>& text) {
  simdjson::dom::array parts;
  JsonElement element;
  if (item[name].get(element) || element.is_null()) return true;
  const auto read_all = [&] {
    if (element.get(parts)) return reader.expected("an array", element);
    std::size_t i = 0;
    for (const JsonElement part : parts) {
      const auto read_one = [&] {
        object members;
        std::string piece;
        if (part.get(members)) return reader.expected("an object", part);
        if (!read_needed(reader, members, "text", piece)) return false;
        add_text(text, piece);
        return true;
      };
      if (!reader.in_item(i++, read_one)) return false;
    }
    return true;
  };
  return reader.in_member(name, read_all);
}

// In full if it was sent in full.
bool read_thought(JsonReader& reader, object item, Messages& out) {
  std::optional<std::string> content, summary;
  if (!read_texts(reader, item, "content", content)) return false;
  if (!read_texts(reader, item, "summary", summary)) return false;
  if (!content) content = std::move(summary);
  if (!content) return true;
  ChatMessage& message = out.emplace_back();
  message.role = "assistant";
  message.reasoning = std::move(content);
  return true;
}

bool read_item(JsonReader& reader, JsonElement element, Messages& out) {
  object item;
  std::string_view type = "message";
  if (element.get(item)) return reader.expected("an object", element);
  if (JsonElement given; !item["type"].get(given) && !given.is_null()) {
    if (!read_type(reader, item, type)) return false;
  }
  if (type == "message") return read_message(reader, item, out);
  if (type == "function_call") return read_call(reader, item, false, out);
  if (type == "custom_tool_call") return read_call(reader, item, true, out);
  if (type == "function_call_output" || type == "custom_tool_call_output") {
    return read_call_output(reader, item, out);
  }
  if (type == "reasoning") return read_thought(reader, item, out);
  return reader.in_member("type", [&] {
    return reader.fail(
        fmt::format("\"{}\" is not supported; expected message, function_call, "
                    "function_call_output, custom_tool_call, custom_tool_call_output or reasoning",
                    type.substr(0, 40)));
  });
}

}  // namespace

bool read_input(JsonReader& reader, JsonElement element, Messages& out) {
  if (element.is_string()) {
    ChatMessage& message = out.emplace_back();
    message.role = "user";
    return read(reader, element, message.content);
  }
  simdjson::dom::array items;
  if (element.get(items)) return reader.expected("a string or an array of items", element);
  if (items.size() == 0) return reader.fail("must not be empty");
  std::size_t i = 0;
  for (const JsonElement item : items) {
    if (!reader.in_item(i++, [&] { return read_item(reader, item, out); })) return false;
  }
  return true;
}

}  // namespace quire::openapi
