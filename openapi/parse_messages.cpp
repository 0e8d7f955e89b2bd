// Anthropic's Messages API: a request as the chat request that it amounts to.

#include <fmt/format.h>

#include <algorithm>

#include "openapi/chat_terms.h"
#include "openapi/client_tools.h"
#include "openapi/dto_json.h"
#include "openapi/parse_chat.h"
#include "openapi/parse_generation.h"
#include "openapi/parse_turns.h"

namespace quire::openapi {

namespace {

using simdjson::dom::object;

struct Messages : ChatCompletionRequest {
  std::optional<std::string> system{};
  std::optional<bool> thinking{};
};

bool read_system(JsonReader& reader, JsonElement element, Messages& out) {
  return read_instruction(reader, element, out.system);
}

bool read_conversation(JsonReader& reader, JsonElement element, Messages& out) {
  return read_turns(reader, element, out.messages);
}

bool read_stop_sequences(JsonReader& reader, JsonElement element, Messages& out) {
  return element.is_array() ? read_stop(reader, element, out)
                            : reader.expected("an array of strings", element);
}

bool read_schema(JsonReader& reader, JsonElement element, FunctionTool& out) {
  return read_raw_object(reader, element, out.parameters) && reader.check_fractions(element);
}

bool read_examples(JsonReader& reader, JsonElement element, FunctionTool& out) {
  return read_raw_array(reader, element, out.input_examples);
}

// Other callers are tools that the service would run.
bool check_callers(JsonReader& reader, JsonElement element, FunctionTool&) {
  std::vector<std::string> callers;
  if (!read(reader, element, callers)) return false;
  return std::ranges::all_of(callers, [](const auto& one) { return one == "direct"; }) ||
         reader.fail("only direct is supported: a tool is called by the model itself");
}

constexpr std::array kToolMembers = {
    JsonMember<FunctionTool>{"name", read_member<&FunctionTool::name>},
    JsonMember<FunctionTool>{"description", read_member<&FunctionTool::description>},
    JsonMember<FunctionTool>{"input_schema", read_schema},
    JsonMember<FunctionTool>{"strict", read_member<&FunctionTool::strict>},
    JsonMember<FunctionTool>{"defer_loading", read_member<&FunctionTool::defer_loading>},
    JsonMember<FunctionTool>{"input_examples", read_examples},
    JsonMember<FunctionTool>{"allowed_callers", check_callers},
};

// Of a type that has its schema: what it is as a function.
bool read_client_tool(JsonReader& reader, object members, std::string_view type,
                      const ClientTool& known, Messages& out) {
  FunctionTool tool{.description = std::string(known.description),
                    .parameters = known.schema};
  if (!read_needed(reader, members, "name", tool.name)) return false;
  if (tool.name != known.name) {
    return reader.in_member("name", [&] {
      return reader.fail(fmt::format("must be \"{}\" for {}", known.name, type));
    });
  }
  return add_function(reader, tool, out);
}

// What other types are, truly.
std::string_view refusal_of(std::string_view type) {
  if (type.starts_with("computer_")) return "shows pictures to the model, and models here read text";
  if (type.starts_with("memory_")) return "is not built in; give it as a custom tool, with its schema";
  if (type.starts_with("bash_") || type.starts_with("text_editor_")) return "is of a date that is not known";
  return "is a tool that the service itself would have to run";
}

bool read_tool(JsonReader& reader, JsonElement element, Messages& out) {
  object members;
  FunctionTool tool;
  if (element.get(members)) return reader.expected("an object", element);
  if (JsonElement type; !members["type"].get(type) && !type.is_null()) {
    std::string_view name;
    if (!read_type(reader, members, name)) return false;
    if (const auto known = find_client_tool(name))
      return read_client_tool(reader, members, name, *known, out);
    if (name != "custom") {
      return reader.in_member("type", [&] {
        return reader.fail(fmt::format("\"{}\" {}; custom, bash and text_editor tools are supported",
                                       name.substr(0, 40), refusal_of(name)));
      });
    }
  }
  if (!read_members<FunctionTool>(reader, members, kToolMembers, tool)) return false;
  if (tool.parameters.empty()) return reader.fail("input_schema is missing");
  return add_function(reader, tool, out);
}

bool read_tools(JsonReader& reader, JsonElement element, Messages& out) {
  simdjson::dom::array tools;
  if (element.get(tools)) return reader.expected("an array", element);
  std::size_t i = 0;
  for (const JsonElement tool : tools) {
    if (!reader.in_item(i++, [&] { return read_tool(reader, tool, out); })) return false;
  }
  return true;
}

bool read_tool_choice(JsonReader& reader, JsonElement element, Messages& out) {
  object choice;
  std::string_view type;
  if (element.get(choice)) return reader.expected("an object", element);
  if (!read_type(reader, choice, type)) return false;
  if (type == "auto") {
    out.tool_choice = ToolChoice::automatic;
  } else if (type == "any") {
    out.tool_choice = ToolChoice::required;
  } else if (type == "none") {
    out.tool_choice = ToolChoice::none;
  } else if (type == "tool") {
    out.tool_choice = ToolChoice::named;
    if (!read_needed(reader, choice, "name", out.named_tool)) return false;
  } else {
    return reader.in_member("type", [&] { return reader.fail("must be auto, any, tool or none"); });
  }
  bool alone = false;
  if (JsonElement flag; !choice["disable_parallel_tool_use"].get(flag) && !flag.is_null()) {
    const auto read_it = [&] { return read(reader, flag, alone); };
    if (!reader.in_member("disable_parallel_tool_use", read_it)) return false;
  }
  out.parallel_tool_calls = !alone;
  return true;
}

bool read_thinking(JsonReader& reader, JsonElement element, Messages& out) {
  object thinking;
  std::string_view type;
  if (element.get(thinking)) return reader.expected("an object", element);
  if (!read_type(reader, thinking, type)) return false;
  if (type != "enabled" && type != "adaptive" && type != "disabled") {
    return reader.in_member("type",
                            [&] { return reader.fail("must be enabled, adaptive or disabled"); });
  }
  out.thinking = type != "disabled";
  if (JsonElement budget; !thinking["budget_tokens"].get(budget) && !budget.is_null()) {
    std::int64_t tokens = 0;
    const auto check = [&] {
      return read(reader, budget, tokens) && (tokens > 0 || reader.fail("must be at least 1"));
    };
    if (!reader.in_member("budget_tokens", check)) return false;
    out.thinking_budget = tokens;
    out.thinking_budget_name = "thinking.budget_tokens";
  }
  std::string display;
  if (JsonElement how; !thinking["display"].get(how) && !how.is_null()) {
    if (!reader.in_member("display", [&] { return read(reader, how, display); })) return false;
  }
  out.include_reasoning = display != "omitted";
  return true;
}

bool read_format(JsonReader& reader, JsonElement element, Messages& out) {
  object format;
  std::string_view type;
  if (element.get(format)) return reader.expected("an object", element);
  if (!read_type(reader, format, type)) return false;
  if (type != "json_schema") {
    return reader.in_member("type", [&] { return reader.fail("must be json_schema"); });
  }
  JsonElement schema;
  if (format["schema"].get(schema)) return reader.fail("schema is missing");
  return reader.in_member("schema", [&] { return want_schema(reader, schema, out); });
}

constexpr std::array kOutputMembers = {
    JsonMember<Messages>{"effort", read_as<read_effort>},
    JsonMember<Messages>{"format", read_format},
};

bool read_output_config(JsonReader& reader, JsonElement element, Messages& out) {
  object config;
  if (element.get(config)) return reader.expected("an object", element);
  return read_members<Messages>(reader, config, kOutputMembers, out);
}

bool read_kwargs(JsonReader& reader, JsonElement element, Messages& out) {
  return read_raw_object(reader, element, out.chat_template_kwargs);
}

// What bills, places or caches; caching is by itself here.
bool ignore_object(JsonReader& reader, JsonElement element, Messages&) {
  return element.is_object() || reader.expected("an object", element);
}
bool ignore_text(JsonReader& reader, JsonElement element, Messages&) {
  return element.is_string() || reader.expected("a string", element);
}

// What a hosted service would do beside the model.
bool refuse(JsonReader& reader, JsonElement element, Messages&) {
  return !asks_for_something(element) || reader.fail("is not supported by this server");
}

// Nothing of a conversation is left out here; what says just that may come.
bool read_edit(JsonReader& reader, JsonElement element) {
  object edit;
  std::string_view type, keep;
  if (element.get(edit)) return reader.expected("an object", element);
  if (!read_type(reader, edit, type)) return false;
  if (type.starts_with("clear_thinking_") && !edit["keep"].get(keep) && keep == "all") return true;
  return reader.in_member("type", [&] {
    return reader.fail(
        fmt::format("\"{}\" is not supported by this server: it leaves nothing out "
                    "of a conversation",
                    type.substr(0, 40)));
  });
}

bool read_context_management(JsonReader& reader, JsonElement element, Messages&) {
  object management;
  simdjson::dom::array edits;
  if (element.get(management)) return reader.expected("an object", element);
  JsonElement list;
  if (management["edits"].get(list) || list.is_null()) return true;
  return reader.in_member("edits", [&] {
    if (list.get(edits)) return reader.expected("an array", list);
    std::size_t i = 0;
    for (const JsonElement edit : edits) {
      if (!reader.in_item(i++, [&] { return read_edit(reader, edit); })) return false;
    }
    return true;
  });
}

constexpr std::array kMembers = {
    JsonMember<Messages>{"model", read_member<&Messages::model>},
    JsonMember<Messages>{"max_tokens", read_member<&Messages::max_tokens>},
    JsonMember<Messages>{"messages", read_conversation},
    JsonMember<Messages>{"system", read_system},
    JsonMember<Messages>{"stream", read_member<&Messages::stream>},
    JsonMember<Messages>{"temperature", read_member<&Messages::temperature>},
    JsonMember<Messages>{"top_p", read_member<&Messages::top_p>},
    JsonMember<Messages>{"top_k", read_member<&Messages::top_k>},
    JsonMember<Messages>{"stop_sequences", read_stop_sequences},
    JsonMember<Messages>{"tools", read_tools},
    JsonMember<Messages>{"tool_choice", read_tool_choice},
    JsonMember<Messages>{"thinking", read_thinking},
    JsonMember<Messages>{"output_config", read_output_config},
    JsonMember<Messages>{"output_format", read_format},
    JsonMember<Messages>{"metadata", ignore_object},
    JsonMember<Messages>{"cache_control", ignore_object},
    JsonMember<Messages>{"diagnostics", ignore_object},
    JsonMember<Messages>{"service_tier", ignore_text},
    JsonMember<Messages>{"inference_geo", ignore_text},
    JsonMember<Messages>{"speed", ignore_text},
    JsonMember<Messages>{"container", refuse},
    JsonMember<Messages>{"mcp_servers", refuse},
    JsonMember<Messages>{"context_management", read_context_management},
    // vLLM's
    JsonMember<Messages>{"chat_template_kwargs", read_kwargs},
    JsonMember<Messages>{"cache_salt", read_as<read_cache_salt>},
    JsonMember<Messages>{"priority", read_member<&Messages::priority>},
    JsonMember<Messages>{"timeout", read_as<read_generation_timeout>},
    JsonMember<Messages>{"kv_transfer_params", read_as<read_transfer_params>},
    JsonMember<Messages>{"vllm_xargs", refuse},
    JsonMember<Messages>{"ec_transfer_params", refuse},
    JsonMember<Messages>{"watermarking", refuse},
};

// An assistant's last turn is the beginning of the answer.
bool continue_last_turn(JsonReader& reader, Messages& out) {
  const ChatMessage& last = out.messages.back();
  if (last.role != "assistant") return true;
  if (!last.content || !last.tool_calls.empty()) {
    return reader.in_member("messages", [&] {
      return reader.fail("the last turn may be the user's, or text that the answer begins with");
    });
  }
  out.add_generation_prompt = false;
  out.continue_final_message = true;
  return true;
}

Result<ChatCompletionRequest> parse(std::string_view body, bool generates) {
  const auto members = parse_json_object(body);
  if (!members) return members.error();
  JsonReader reader;
  Messages request;
  request.parameters_at = "input_schema";
  request.may_join_system = true;
  if (!read_members<Messages>(reader, *members, kMembers, request, &request.unknown_members)) {
    return reader.take_error();
  }
  const auto fail_at = [&](std::string_view name, std::string_view what) {
    reader.in_member(name, [&] { return reader.fail(what); });
    return reader.take_error();
  };
  request.fits_max_tokens = true;  // agents ask for as many in every turn
  if (request.messages.empty()) return fail_at("messages", "is missing or empty");
  if (generates && !request.max_tokens) return fail_at("max_tokens", "is missing");
  if (generates && request.thinking.value_or(false) &&
      request.thinking_budget.value_or(0) >= *request.max_tokens) {
    return fail_at("thinking.budget_tokens", "must be less than max_tokens");
  }
  if (!continue_last_turn(reader, request) || !check_named_tool(reader, request, {"name"})) {
    return reader.take_error();
  }
  if (request.system) {
    ChatMessage system{.role = "system", .content = std::move(request.system)};
    request.messages.insert(request.messages.begin(), std::move(system));
  }
  if (request.thinking) set_thinking(*request.thinking, request);
  if (!check_chat(reader, request)) return reader.take_error();
  return ChatCompletionRequest(std::move(request));
}

}  // namespace

Result<ChatCompletionRequest> parse_messages(std::string_view body) { return parse(body, true); }
Result<ChatCompletionRequest> parse_count_tokens(std::string_view body) {
  return parse(body, false);
}

}  // namespace quire::openapi
