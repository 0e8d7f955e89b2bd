#include "openapi/parse_chat.h"

#include <fmt/format.h>

#include <algorithm>

#include "openapi/allowed_tools.h"
#include "openapi/chat_members.h"
#include "openapi/chat_terms.h"
#include "openapi/dto_json.h"
#include "openapi/ignored_members.h"
#include "openapi/parse_generation.h"

namespace quire::openapi {

namespace {

bool read_messages(JsonReader& reader, JsonElement element, ChatCompletionRequest& out) {
  simdjson::dom::array messages;
  if (element.get(messages)) return reader.expected("an array", element);
  out.messages.reserve(messages.size());
  std::size_t i = 0;
  for (const JsonElement message : messages) {
    const auto read_one = [&] { return read(reader, message, out.messages.emplace_back()); };
    if (!reader.in_item(i++, read_one)) return false;
  }
  return true;
}

// Templates show doubles.
bool check_fractions(JsonReader& reader, simdjson::dom::object function) {
  JsonElement parameters;
  if (function["parameters"].get(parameters)) return true;
  return reader.in_member("parameters", [&] { return reader.check_fractions(parameters); });
}

bool check_function(JsonReader& reader, simdjson::dom::object function, ToolNames& names) {
  std::string name;
  if (!read_needed(reader, function, "name", name)) return false;
  if (!reader.in_member("name", [&] { return add_tool_name(reader, name, names); })) return false;
  const auto check = [&](std::string_view member, bool (JsonElement::*is)() const, std::string_view type) {
    JsonElement value;
    if (function[member].get(value) || value.is_null() || (value.*is)()) return true;
    return reader.in_member(member, [&] { return reader.expected(type, value); });
  };
  return check("description", &JsonElement::is_string, "a string") &&
         check("parameters", &JsonElement::is_object, "an object") &&
         check("strict", &JsonElement::is_bool, "true or false") && check_fractions(reader, function);
}

bool check_tool(JsonReader& reader, JsonElement element, ToolNames& names) {
  simdjson::dom::object tool, function;
  std::string_view type;
  if (element.get(tool)) return reader.expected("an object", element);
  if (!tool["type"].get(type) && type != "function") {
    return reader.in_member("type", [&] {
      return reader.fail(
          fmt::format("\"{}\" is not supported; expected \"function\"", type.substr(0, 40)));
    });
  }
  JsonElement given;
  if (tool["function"].get(given)) return reader.fail("function is missing");
  return reader.in_member("function", [&] {
    if (given.get(function)) return reader.expected("an object", given);
    return check_function(reader, function, names);
  });
}

bool read_tools(JsonReader& reader, JsonElement element, ChatCompletionRequest& out) {
  simdjson::dom::array tools;
  if (element.get(tools)) return reader.expected("an array", element);
  std::size_t i = 0;
  for (const JsonElement tool : tools) {
    if (!reader.in_item(i++, [&] { return check_tool(reader, tool, out.tool_names); }))
      return false;
  }
  out.gave_tools = true;
  if (i > 0) out.tools = reader.text(element);
  return true;
}

bool read_named_tool(JsonReader& reader, JsonElement element, ChatCompletionRequest& out) {
  simdjson::dom::object function;
  std::string_view type;
  JsonElement given;
  if (!element["type"].get(given) && !given.get(type) && type == "allowed_tools") {
    simdjson::dom::object allowed;
    if (element["allowed_tools"].get(given)) return reader.fail("allowed_tools is missing");
    return reader.in_member("allowed_tools", [&] {
      if (given.get(allowed)) return reader.expected("an object", given);
      return read_allowed_tools(reader, allowed, AllowedToolsForm::chat, out);
    });
  }
  out.tool_choice = ToolChoice::named;
  if (!element["type"].get(given) && (given.get(type) || type != "function")) {
    return reader.in_member("type",
                            [&] { return reader.fail("must be function or allowed_tools"); });
  }
  if (element["function"].get(given)) return reader.fail("function is missing");
  return reader.in_member("function", [&] {
    if (given.get(function)) return reader.expected("an object", given);
    return read_needed(reader, function, "name", out.named_tool) &&
           (!out.named_tool.empty() || reader.fail("name is empty"));
  });
}

bool read_tool_choice(JsonReader& reader, JsonElement element, ChatCompletionRequest& out) {
  if (element.is_object()) return read_named_tool(reader, element, out);
  std::string_view choice;
  if (element.get(choice)) return reader.expected("a string or an object", element);
  if (choice == "auto") {
    out.tool_choice = ToolChoice::automatic;
  } else if (choice == "none") {
    out.tool_choice = ToolChoice::none;
  } else if (choice == "required") {
    out.tool_choice = ToolChoice::required;
  } else {
    return reader.fail("must be auto, none, required or an object that names a function");
  }
  return true;
}

bool read_kwargs(JsonReader& reader, JsonElement element, ChatCompletionRequest& out) {
  return read_raw_object(reader, element, out.chat_template_kwargs);
}

bool read_documents(JsonReader& reader, JsonElement element, ChatCompletionRequest& out) {
  simdjson::dom::array documents;
  if (!read_raw_array(reader, element, out.documents) || element.get(documents)) return false;
  std::size_t i = 0;
  for (const JsonElement document : documents) {
    if (!document.is_object())
      return reader.in_item(i, [&] { return reader.expected("an object", document); });
    ++i;
  }
  return true;
}

using Chat = ChatCompletionRequest;
constexpr std::array kOwnMembers = {
    JsonMember<Chat>{"messages", read_messages},
    JsonMember<Chat>{"tools", read_tools},
    JsonMember<Chat>{"tool_choice", read_tool_choice},
    JsonMember<Chat>{"parallel_tool_calls", read_member<&Chat::parallel_tool_calls>},
    JsonMember<Chat>{"logprobs", read_member<&Chat::logprobs>},
    JsonMember<Chat>{"top_logprobs", read_member<&Chat::top_logprobs>},
    JsonMember<Chat>{"include_reasoning", read_member<&Chat::include_reasoning>},
    JsonMember<Chat>{"reasoning_effort", read_effort},
    JsonMember<Chat>{"add_generation_prompt", read_member<&Chat::add_generation_prompt>},
    JsonMember<Chat>{"continue_final_message", read_member<&Chat::continue_final_message>},
    JsonMember<Chat>{"chat_template", read_member<&Chat::chat_template>},
    JsonMember<Chat>{"chat_template_kwargs", read_kwargs},
    JsonMember<Chat>{"documents", read_documents},
};
constexpr auto kMembers = joined(kSharedMembers<Chat>, kOwnMembers);

}  // namespace

std::vector<std::string_view> chat_members() {
  std::vector<std::string_view> names;
  for (const auto& member : kMembers) names.push_back(member.name);
  for (const std::string_view name : ignored_members()) names.push_back(name);
  return names;
}

bool check_chat(JsonReader& reader, const Chat& chat) {
  const auto fail_at = [&](std::string_view name, std::string_view what) {
    return reader.in_member(name, [&] { return reader.fail(what); });
  };
  if (chat.messages.empty()) return fail_at("messages", "at least one message is required");
  if (!check_logprobs(reader, "top_logprobs", chat.top_logprobs)) return false;
  if (chat.top_logprobs > 0 && !chat.logprobs) {
    return fail_at("top_logprobs", "only allowed when logprobs is true");
  }
  const bool wants_tools = chat.tool_choice && *chat.tool_choice != ToolChoice::none;
  if (wants_tools && chat.tools.empty()) {
    return fail_at("tool_choice", "only allowed when tools are given");
  }
  if (!check_named_tool(reader, chat, {"function", "name"}) ||
      !check_allowed_tools(reader, chat, AllowedToolsForm::chat)) {
    return false;
  }
  const bool demands_call =
      chat.tool_choice == ToolChoice::required || chat.tool_choice == ToolChoice::named;
  if (demands_call && chat.grammar) {
    return fail_at(member_of(*chat.grammar), "contradicts a tool_choice that demands a call");
  }
  if (chat.add_generation_prompt && chat.continue_final_message) {
    return fail_at("continue_final_message",
                   "cannot be true while add_generation_prompt is true (its default)");
  }
  return true;
}

bool read_chat_members(JsonReader& reader, simdjson::dom::object object, Chat& out) {
  if (!read_members<Chat>(reader, object, kMembers, out, &out.unknown_members)) return false;
  // The newer name wins.
  if (JsonElement limit; !object["max_completion_tokens"].get(limit) && !limit.is_null()) {
    const auto read_limit = [&] { return read(reader, limit, out.max_tokens.emplace()); };
    if (!reader.in_member("max_completion_tokens", read_limit)) return false;
    out.max_tokens_name = "max_completion_tokens";
  }
  // An agent's list of tools may be empty for a turn, which is no choice then; a call that is
  // demanded can only be refused.
  const bool demands_call =
      out.tool_choice == ToolChoice::required || out.tool_choice == ToolChoice::named;
  if (out.gave_tools && out.tools.empty() && !demands_call) out.tool_choice.reset();
  if (!check_generation(reader, object, out) || !check_chat(reader, out)) return false;
  // Who wants the prompt too wants what it was given, as in vLLM.
  if (out.echo && out.logprobs && !out.stream && !out.prompt_logprobs)
    out.prompt_logprobs = out.top_logprobs;
  return true;
}

Result<ChatCompletionRequest> parse_chat_completion(std::string_view body) {
  const auto object = parse_json_object(body);
  if (!object) return object.error();
  JsonReader reader;
  ChatCompletionRequest request;
  if (!read_chat_members(reader, *object, request)) return reader.take_error();
  return request;
}

}  // namespace quire::openapi
