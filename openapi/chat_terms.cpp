#include "openapi/chat_terms.h"

#include <fmt/format.h>

#include <algorithm>

#include "openapi/json_writer.h"
#include "openapi/parse_generation.h"

namespace quire::openapi {

// What models write a call with ends no name and opens nothing: no blanks, quotes, brackets, marks.
bool add_tool_name(JsonReader& reader, std::string_view name, ToolNames& names) {
  constexpr std::size_t kLongest = 256;
  const auto is_right = [](char c) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c & 0x80) != 0;
    return letter || (c >= '0' && c <= '9') || std::string_view("_-./").find(c) != std::string_view::npos;
  };
  if (name.empty() || name.size() > kLongest || !std::ranges::all_of(name, is_right)) {
    return reader.fail("must be 1 to 256 bytes of letters, digits and _ - . /");
  }
  if (names.add(name)) return true;
  return reader.fail(
      fmt::format("\"{}\" is the name of an earlier function, too", name.substr(0, 100)));
}

bool check_named_tool(JsonReader& reader, const ChatCompletionRequest& chat,
                      std::initializer_list<std::string_view> place) {
  const ToolNames& names = chat.tool_names;
  if (chat.tool_choice != ToolChoice::named || names.empty() || names.has(chat.named_tool))
    return true;
  return reader.in_member("tool_choice", [&] {
    return reader.in_members(place, [&] {
      return reader.fail(fmt::format("\"{}\" is none of the tools; they are {}",
                                     chat.named_tool.substr(0, 100), fmt::join(names.list(), ", ")));
    });
  });
}

bool add_function(JsonReader& reader, const FunctionTool& tool, ChatCompletionRequest& chat) {
  if (tool.name.empty()) return reader.fail("name is missing");
  const auto add_name = [&] { return add_tool_name(reader, tool.name, chat.tool_names); };
  if (!reader.in_member("name", add_name)) return false;
  std::string text;
  JsonWriter json(text);
  json.begin_object().key("type").string("function").key("function").begin_object();
  json.key("name").string(tool.name);
  if (!tool.description.empty()) json.key("description").string(tool.description);
  if (!tool.parameters.empty()) json.key("parameters").raw(tool.parameters);
  if (tool.strict) json.key("strict").boolean(true);
  if (tool.defer_loading) json.key("defer_loading").boolean(true);
  if (!tool.input_examples.empty()) json.key("input_examples").raw(tool.input_examples);
  json.end_object().end_object();
  if (chat.tools.empty()) {
    chat.tools = '[' + text + ']';
  } else {
    chat.tools.back() = ',';
    chat.tools.append(text).append("]");
  }
  return true;
}

bool want_schema(JsonReader& reader, JsonElement schema, GenerationRequest& out) {
  if (!schema.is_object()) return reader.expected("an object", schema);
  out.grammar = OutputGrammar{OutputGrammar::Kind::json_schema, reader.text(schema), reader.pointer()};
  return true;
}

bool read_effort(JsonReader& reader, JsonElement element, ChatCompletionRequest& out) {
  static constexpr std::string_view kEfforts[] = {"none", "minimal", "low",  "medium",
                                                  "high", "xhigh",   "max"};
  std::string effort;
  if (!read(reader, element, effort)) return false;
  if (std::ranges::find(kEfforts, effort) == std::ranges::end(kEfforts)) {
    return reader.fail(fmt::format("must be one of {}", fmt::join(kEfforts, ", ")));
  }
  out.reasoning_effort = std::move(effort);
  return true;
}

void set_thinking(bool enabled, ChatCompletionRequest& chat) {
  std::string& kwargs = chat.chat_template_kwargs;
  const std::string member = fmt::format("{{\"enable_thinking\":{}", enabled);
  const bool others = kwargs.size() > 2;  // more than {}
  kwargs = others ? member + ',' + kwargs.substr(1) : member + '}';
}

void add_text(std::optional<std::string>& to, std::string_view text) {
  if (to) {
    to->append("\n").append(text);
  } else {
    to = text;
  }
}

void add_part(ChatMessage& to, std::string_view text) {
  if (to.content) to.part_breaks.push_back(to.content->size());
  add_text(to.content, text);
}

bool is_json_object(std::string_view text) {
  simdjson::dom::parser parser;
  JsonElement element;
  return !parser.parse(text.data(), text.size()).get(element) && element.is_object();
}

bool read_type(JsonReader& reader, simdjson::dom::object object, std::string_view& type) {
  JsonElement element;
  if (object["type"].get(element)) return reader.fail("type is missing");
  return reader.in_member(
      "type", [&] { return !element.get(type) || reader.expected("a string", element); });
}

bool read_needed(JsonReader& reader, simdjson::dom::object object, std::string_view name,
                 std::string& out) {
  JsonElement element;
  if (object[name].get(element)) return reader.fail(fmt::format("{} is missing", name));
  return reader.in_member(name, [&] { return read(reader, element, out); });
}

}  // namespace quire::openapi
