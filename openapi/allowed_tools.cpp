#include "openapi/allowed_tools.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>

#include "openapi/chat_terms.h"

namespace quire::openapi {

namespace {

template <typename Read>
bool at_name(JsonReader& reader, AllowedToolsForm form, Read read) {
  return form == AllowedToolsForm::chat ? reader.in_members({"function", "name"}, read)
                                        : reader.in_members({"name"}, read);
}

template <typename Read>
bool at_list(JsonReader& reader, AllowedToolsForm form, Read read) {
  return form == AllowedToolsForm::chat
             ? reader.in_members({"tool_choice", "allowed_tools", "tools"}, read)
             : reader.in_members({"tool_choice", "tools"}, read);
}

bool read_name(JsonReader& reader, JsonElement tool, AllowedToolsForm form,
               std::string& out) {
  if (form == AllowedToolsForm::chat && tool["function"].get(tool)) {
    return reader.fail("function is missing");
  }
  if (tool["name"].get(tool)) return reader.fail("name is missing");
  return at_name(reader, form, [&] { return read(reader, tool, out); });
}

bool read_list(JsonReader& reader, JsonElement tools, AllowedToolsForm form,
               ChatCompletionRequest& out) {
  simdjson::dom::array list;
  if (tools.get(list)) return reader.expected("an array", tools);
  if (list.size() == 0) return reader.fail("must not be empty");
  std::size_t i = 0;
  for (const JsonElement tool : list) {
    const auto read_one = [&] {
      return read_name(reader, tool, form, out.allowed_tools.emplace_back());
    };
    if (!reader.in_item(i++, read_one)) return false;
  }
  return true;
}

}  // namespace

bool read_allowed_tools(JsonReader& reader, simdjson::dom::object allowed,
                        AllowedToolsForm form, ChatCompletionRequest& out) {
  std::string mode;
  if (!read_needed(reader, allowed, "mode", mode)) return false;
  if (mode != "auto" && mode != "required") {
    return reader.in_member("mode", [&] { return reader.fail("must be auto or required"); });
  }
  out.tool_choice = mode == "auto" ? ToolChoice::automatic : ToolChoice::required;
  JsonElement tools;
  if (allowed["tools"].get(tools)) return reader.fail("tools is missing");
  return reader.in_member("tools", [&] { return read_list(reader, tools, form, out); });
}

bool check_allowed_tools(JsonReader& reader, const ChatCompletionRequest& chat,
                         AllowedToolsForm form) {
  const ToolNames& names = chat.tool_names;
  if (names.empty()) return true;
  for (std::size_t i = 0; i < chat.allowed_tools.size(); ++i) {
    const std::string& one = chat.allowed_tools[i];
    if (names.has(one)) continue;
    const auto fail = [&] {
      return reader.fail(fmt::format("\"{}\" is none of the tools; they are {}", one.substr(0, 100),
                                     fmt::join(names.list(), ", ")));
    };
    return at_list(reader, form, [&] {
      return reader.in_item(i, [&] { return at_name(reader, form, fail); });
    });
  }
  return true;
}

}  // namespace quire::openapi
