#include "openapi/parse_turns.h"

#include <fmt/format.h>

#include "openapi/chat_terms.h"

namespace quire::openapi {

namespace {

using simdjson::dom::object;
using Messages = std::vector<ChatMessage>;

bool refuse_type(JsonReader& reader, std::string_view type, std::string_view allowed) {
  return reader.in_member("type", [&] {
    return reader.fail(
        fmt::format("\"{}\" is not supported here, where text is all the model takes; "
                    "expected {}",
                    type.substr(0, 40), allowed));
  });
}

// What the turn goes on in: the last message, if it is of the same role.
ChatMessage& message_of(std::string_view role, Messages& out) {
  if (out.empty() || out.back().role != role) out.emplace_back().role = role;
  return out.back();
}

bool instructs(std::string_view text) {
  return !text.empty() && !text.starts_with("x-anthropic-billing-header");
}

// An instruction is one text, also of several blocks.
void add_said(std::string_view role, std::string_view text, Messages& out) {
  if (role != "system") {
    add_part(message_of(role, out), text);
  } else if (instructs(text)) {
    add_text(message_of(role, out).content, text);
  }
}

bool read_tool_use(JsonReader& reader, object block, Messages& out) {
  ToolCall call;
  if (!read_needed(reader, block, "id", call.id)) return false;
  if (!read_needed(reader, block, "name", call.function.name)) return false;
  JsonElement input;
  if (block["input"].get(input)) return reader.fail("input is missing");
  if (!input.is_object()) {
    return reader.in_member("input", [&] { return reader.expected("an object", input); });
  }
  call.function.arguments = reader.text(input);
  message_of("assistant", out).tool_calls.push_back(std::move(call));
  return true;
}

bool read_thinking(JsonReader& reader, object block, Messages& out) {
  std::string thinking;
  if (!read_needed(reader, block, "thinking", thinking)) return false;
  add_text(message_of("assistant", out).reasoning, thinking);
  return true;
}

// The model is told of a failure in words, since a chat has no other place for it.
bool read_tool_result(JsonReader& reader, object block, Messages& out) {
  ChatMessage& message = out.emplace_back();
  message.role = "tool";
  message.content.emplace();
  std::string id;
  if (!read_needed(reader, block, "tool_use_id", id)) return false;
  message.tool_call_id = std::move(id);
  if (JsonElement content; !block["content"].get(content) && !content.is_null()) {
    std::optional<std::string> text;
    const auto read_it = [&] { return read_blocks_of_text(reader, content, text); };
    if (!reader.in_member("content", read_it)) return false;
    message.content = text.value_or("");
  }
  bool is_error = false;
  if (JsonElement flag; !block["is_error"].get(flag) && !flag.is_null()) {
    if (!reader.in_member("is_error", [&] { return read(reader, flag, is_error); })) return false;
  }
  if (is_error) message.content->insert(0, "Error: ");
  return true;
}

bool read_text(JsonReader& reader, object block, std::string_view role, Messages& out) {
  std::string text;
  if (!read_needed(reader, block, "text", text)) return false;
  add_said(role, text, out);
  return true;
}

bool read_block(JsonReader& reader, JsonElement element, std::string_view role, Messages& out) {
  object block;
  std::string_view type;
  if (element.get(block)) return reader.expected("an object", element);
  if (!read_type(reader, block, type)) return false;
  if (type == "text") return read_text(reader, block, role, out);
  if (role == "assistant") {
    if (type == "thinking") return read_thinking(reader, block, out);
    if (type == "tool_use") return read_tool_use(reader, block, out);
    if (type == "redacted_thinking") return true;  // encrypted: nobody but its maker reads it
    return refuse_type(reader, type, "text, thinking or tool_use");
  }
  if (role == "user" && type == "tool_result") return read_tool_result(reader, block, out);
  return refuse_type(reader, type, role == "user" ? "text or tool_result" : "text");
}

bool read_content(JsonReader& reader, JsonElement element, std::string_view role, Messages& out) {
  if (element.is_string()) {
    std::string text;
    if (!read(reader, element, text)) return false;
    add_said(role, text, out);
    return true;
  }
  simdjson::dom::array blocks;
  if (element.get(blocks)) return reader.expected("a string or an array of blocks", element);
  if (blocks.size() == 0) return reader.fail("must not be empty");
  std::size_t i = 0;
  for (const JsonElement block : blocks) {
    if (!reader.in_item(i++, [&] { return read_block(reader, block, role, out); })) return false;
  }
  return true;
}

bool read_turn(JsonReader& reader, JsonElement element, Messages& out) {
  object turn;
  std::string role;
  if (element.get(turn)) return reader.expected("an object", element);
  if (!read_needed(reader, turn, "role", role)) return false;
  if (role != "user" && role != "assistant" && role != "system") {
    return reader.in_member("role", [&] {
      return reader.fail(fmt::format("\"{}\" is not a role; expected user, assistant or system",
                                     role.substr(0, 40)));
    });
  }
  JsonElement content;
  if (turn["content"].get(content)) return reader.fail("content is missing");
  return reader.in_member("content", [&] { return read_content(reader, content, role, out); });
}

bool read_texts(JsonReader& reader, JsonElement element, std::optional<std::string>& out,
                bool (*counts)(std::string_view)) {
  simdjson::dom::array blocks;
  if (element.get(blocks)) return reader.expected("a string or an array of blocks", element);
  std::size_t i = 0;
  for (const JsonElement item : blocks) {
    const auto read_one = [&] {
      object block;
      std::string_view type;
      std::string text;
      if (item.get(block)) return reader.expected("an object", item);
      if (!read_type(reader, block, type)) return false;
      if (type != "text") return refuse_type(reader, type, "text");
      if (!read_needed(reader, block, "text", text)) return false;
      if (counts(text)) add_text(out, text);
      return true;
    };
    if (!reader.in_item(i++, read_one)) return false;
  }
  return true;
}

}  // namespace

bool read_blocks_of_text(JsonReader& reader, JsonElement element, std::optional<std::string>& out) {
  if (element.is_string()) return read(reader, element, out);
  return read_texts(reader, element, out, [](std::string_view) { return true; });
}

bool read_instruction(JsonReader& reader, JsonElement element, std::optional<std::string>& out) {
  if (!element.is_string()) return read_texts(reader, element, out, instructs);
  if (!read(reader, element, out)) return false;
  if (out->empty()) out.reset();
  return true;
}

bool read_turns(JsonReader& reader, JsonElement element, Messages& out) {
  simdjson::dom::array turns;
  if (element.get(turns)) return reader.expected("an array", element);
  std::size_t i = 0;
  for (const JsonElement turn : turns) {
    if (!reader.in_item(i++, [&] { return read_turn(reader, turn, out); })) return false;
  }
  return true;
}

}  // namespace quire::openapi
