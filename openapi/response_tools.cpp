#include "openapi/response_tools.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <unordered_map>
#include <vector>

#include "openapi/chat_terms.h"
#include "openapi/json_writer.h"
#include "openapi/parse_generation.h"

namespace quire::openapi {

namespace {

using simdjson::dom::object;
using Request = ResponsesRequest;

constexpr std::string_view kText = "input";  // of a custom tool's function
constexpr std::string_view kTextParameters =
    R"({"type":"object","properties":{"input":{"type":"string"}},"required":["input"],)"
    R"("additionalProperties":false})";

// What agents send along whatever the server can do, and what a model can do without.
constexpr std::string_view kNotOffered[] = {"web_search",         "web_search_2025_08_26",
                                            "web_search_preview", "web_search_preview_2025_03_11",
                                            "image_generation",   "tool_search"};

bool read_parameters(JsonReader& reader, JsonElement element, FunctionTool& out) {
  return read_raw_object(reader, element, out.parameters) && reader.check_fractions(element);
}

// The grammar is told to the model and not forced on it.
bool read_text_format(JsonReader& reader, JsonElement element, FunctionTool& out) {
  object format;
  std::string_view type;
  if (element.get(format)) return reader.expected("an object", element);
  if (!read_type(reader, format, type)) return false;
  if (type == "text") return true;
  if (type != "grammar") {
    return reader.in_member("type", [&] { return reader.fail("must be text or grammar"); });
  }
  std::string syntax, definition;
  if (!read_needed(reader, format, "syntax", syntax)) return false;
  if (!read_needed(reader, format, "definition", definition)) return false;
  out.input_grammar = fmt::format("The input follows this {} grammar:\n{}", syntax, definition);
  return true;
}

constexpr std::array kFunctionMembers = {
    JsonMember<FunctionTool>{"name", read_member<&FunctionTool::name>},
    JsonMember<FunctionTool>{"description", read_member<&FunctionTool::description>},
    JsonMember<FunctionTool>{"parameters", read_parameters},
    JsonMember<FunctionTool>{"strict", read_member<&FunctionTool::strict>},
};
constexpr std::array kCustomMembers = {
    JsonMember<FunctionTool>{"name", read_member<&FunctionTool::name>},
    JsonMember<FunctionTool>{"description", read_member<&FunctionTool::description>},
    JsonMember<FunctionTool>{"format", read_text_format},
};

bool read_called(JsonReader& reader, object members, std::string_view name_space, bool is_custom,
                 Request& out) {
  FunctionTool tool;
  if (is_custom) {
    if (!read_members<FunctionTool>(reader, members, kCustomMembers, tool)) return false;
    tool.parameters = kTextParameters;
    if (!tool.description.empty() && !tool.input_grammar.empty()) tool.description += "\n\n";
    tool.description += tool.input_grammar;
  } else if (!read_members<FunctionTool>(reader, members, kFunctionMembers, tool)) {
    return false;
  }
  if (tool.name.empty()) return reader.fail("name is missing");
  if (is_custom || !name_space.empty()) {
    const std::string function = function_name(name_space, tool.name);
    out.tool_forms.push_back({function, tool.name, std::string(name_space), is_custom});
    tool.name = function;
  }
  return add_function(reader, tool, out);
}

bool read_tool(JsonReader& reader, JsonElement element, std::string_view name_space, Request& out);

bool read_list(JsonReader& reader, JsonElement element, std::string_view name_space, Request& out) {
  simdjson::dom::array tools;
  if (element.get(tools)) return reader.expected("an array", element);
  std::size_t i = 0;
  for (const JsonElement tool : tools) {
    const auto read_one = [&] { return read_tool(reader, tool, name_space, out); };
    if (!reader.in_item(i++, read_one)) return false;
  }
  return true;
}

bool read_namespace(JsonReader& reader, object members, Request& out) {
  std::string name;
  JsonElement tools;
  if (!read_needed(reader, members, "name", name)) return false;
  if (name.empty()) return reader.fail("name is missing");
  if (members["tools"].get(tools)) return reader.fail("tools is missing");
  return reader.in_member("tools", [&] { return read_list(reader, tools, name, out); });
}

bool read_tool(JsonReader& reader, JsonElement element, std::string_view name_space, Request& out) {
  object members;
  std::string_view type;
  if (element.get(members)) return reader.expected("an object", element);
  if (!read_type(reader, members, type)) return false;
  if (type == "function" || type == "custom") {
    return read_called(reader, members, name_space, type == "custom", out);
  }
  if (name_space.empty()) {
    if (type == "namespace") return read_namespace(reader, members, out);
    if (std::ranges::find(kNotOffered, type) != std::end(kNotOffered)) {
      out.unknown_members.push_back(fmt::format("tools[].type {}", type));
      return true;
    }
  }
  return reader.in_member("type", [&] {
    return reader.fail(
        fmt::format("\"{}\" is not supported; expected {}", type.substr(0, 40),
                    name_space.empty() ? "function, custom or namespace" : "function or custom"));
  });
}

}  // namespace

bool read_response_tools(JsonReader& reader, JsonElement element, Request& out) {
  if (!read_list(reader, element, {}, out)) return false;
  out.said_tools = reader.text(element);
  return true;
}

void resolve_tool_names(Request& request) {
  std::unordered_map<std::string_view, std::vector<const ToolForm*>> forms;
  for (const ToolForm& form : request.tool_forms) forms[form.name].push_back(&form);
  const auto resolve = [&](std::string& name) {
    if (request.tool_names.has(name)) return;
    const auto meant = forms.find(name);
    if (meant != forms.end() && meant->second.size() == 1) name = meant->second.front()->function;
  };
  resolve(request.named_tool);
  std::ranges::for_each(request.allowed_tools, resolve);
}

std::string function_name(std::string_view name_space, std::string_view name) {
  return name_space.empty() ? std::string(name) : fmt::format("{}__{}", name_space, name);
}

std::string arguments_of_text(std::string_view text) {
  std::string out;
  JsonWriter(out).begin_object().key(kText).string(text).end_object();
  return out;
}

std::string text_of_arguments(std::string_view arguments) {
  std::string_view text;
  const auto members = parse_json_object(arguments);
  if (!members || (*members)[kText].get(text)) return std::string(arguments);
  return std::string(text);
}

}  // namespace quire::openapi
