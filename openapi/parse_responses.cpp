// OpenAI's Responses API: a request as the chat request that it amounts to.

#include <fmt/format.h>

#include <algorithm>

#include "openapi/allowed_tools.h"
#include "openapi/chat_terms.h"
#include "openapi/dto_json.h"
#include "openapi/parse_chat.h"
#include "openapi/parse_generation.h"
#include "openapi/parse_items.h"
#include "openapi/response_tools.h"
#include "openapi/responses.h"

namespace quire::openapi {

namespace {

using simdjson::dom::object;
using Request = ResponsesRequest;

// An item of the assistant's that was cut off: the answer goes on with it.
bool continue_last(JsonReader& reader, object item, Request& out) {
  std::string_view status, type = "message";
  if (item["status"].get(status) || (status != "in_progress" && status != "incomplete"))
    return true;
  if (std::string_view given; !item["type"].get(given)) type = given;
  if (type != "message") {
    return reader.in_member("status", [&] {
      return reader.fail(
          fmt::format("a {} that is {} cannot be continued; a message can", type, status));
    });
  }
  if (out.messages.back().role != "assistant") return true;
  out.continue_final_message = true;
  out.add_generation_prompt = false;
  return true;
}

bool read_messages(JsonReader& reader, JsonElement element, Request& out) {
  if (!read_input(reader, element, out.messages)) return false;
  simdjson::dom::array items;
  object last;
  if (element.get(items) || items.at(items.size() - 1).get(last)) return true;
  return reader.in_item(items.size() - 1, [&] { return continue_last(reader, last, out); });
}

bool read_tool_choice(JsonReader& reader, JsonElement element, Request& out) {
  object named;
  std::string_view choice;
  if (!element.get(named)) {
    if (!read_type(reader, named, choice)) return false;
    if (choice == "allowed_tools") {
      if (!read_allowed_tools(reader, named, AllowedToolsForm::responses, out)) return false;
    } else if (choice == "function" || choice == "custom") {
      out.tool_choice = ToolChoice::named;
      if (!read_needed(reader, named, "name", out.named_tool)) return false;
    } else {
      return reader.in_member(
          "type", [&] { return reader.fail("must be function, custom or allowed_tools"); });
    }
  } else if (element.get(choice)) {
    return reader.expected("a string or an object", element);
  } else if (choice == "auto") {
    out.tool_choice = ToolChoice::automatic;
  } else if (choice == "none") {
    out.tool_choice = ToolChoice::none;
  } else if (choice == "required") {
    out.tool_choice = ToolChoice::required;
  } else {
    return reader.fail("must be auto, none, required or an object that names a function");
  }
  out.said_tool_choice = reader.text(element);
  return true;
}

bool read_format(JsonReader& reader, JsonElement element, Request& out) {
  object format;
  std::string_view type;
  if (element.get(format)) return reader.expected("an object", element);
  if (!read_type(reader, format, type)) return false;
  if (type != "json_schema") {
    return read_response_format(reader, element, out);
  }
  std::string name;
  JsonElement schema;
  if (!read_needed(reader, format, "name", name)) return false;
  if (format["schema"].get(schema)) return reader.fail("schema is missing");
  return reader.in_member("schema", [&] { return want_schema(reader, schema, out); });
}

bool ignore_text(JsonReader& reader, JsonElement element, Request&) {
  return element.is_string() || reader.expected("a string", element);
}
bool ignore_integer(JsonReader& reader, JsonElement element, Request&) {
  std::int64_t ignored;
  return read(reader, element, ignored);
}
bool ignore_object(JsonReader& reader, JsonElement element, Request&) {
  return element.is_object() || reader.expected("an object", element);
}
bool refuse(JsonReader& reader, JsonElement element, Request&) {
  return !asks_for_something(element) || reader.fail("is not supported by this server");
}

constexpr std::array kTextMembers = {
    JsonMember<Request>{"format", read_format},
    JsonMember<Request>{"verbosity", ignore_text},
};

bool read_text(JsonReader& reader, JsonElement element, Request& out) {
  object text;
  if (element.get(text)) return reader.expected("an object", element);
  out.said_text = reader.text(element);
  return read_members<Request>(reader, text, kTextMembers, out);
}

constexpr std::array kReasoningMembers = {
    JsonMember<Request>{"effort", read_as<read_effort>},
    JsonMember<Request>{"summary", read_member<&Request::reasoning_summary>},
};

bool read_reasoning(JsonReader& reader, JsonElement element, Request& out) {
  object reasoning;
  if (element.get(reasoning)) return reader.expected("an object", element);
  return read_members<Request>(reader, reasoning, kReasoningMembers, out);
}

// Thoughts are always there in clear, so that nobody needs them encrypted.
bool read_include(JsonReader& reader, JsonElement element, Request& out) {
  std::vector<std::string> names;
  if (!read(reader, element, names)) return false;
  for (const std::string& name : names) {
    if (name == "message.output_text.logprobs") {
      out.logprobs = true;
    } else if (name != "reasoning.encrypted_content") {
      return reader.fail(
          fmt::format("\"{}\" is not supported; message.output_text.logprobs and "
                      "reasoning.encrypted_content are",
                      name.substr(0, 60)));
    }
  }
  return true;
}

bool read_metadata(JsonReader& reader, JsonElement element, Request& out) {
  return read_raw_object(reader, element, out.said_metadata);
}
bool read_kwargs(JsonReader& reader, JsonElement element, Request& out) {
  return read_raw_object(reader, element, out.chat_template_kwargs);
}

bool read_truncation(JsonReader& reader, JsonElement element, Request&) {
  std::string_view how;
  if (element.get(how)) return reader.expected("a string", element);
  return how == "disabled" || reader.fail("must be disabled: nothing is left out unasked");
}

constexpr std::array kMembers = {
    JsonMember<Request>{"model", read_member<&Request::model>},
    JsonMember<Request>{"input", read_messages},
    JsonMember<Request>{"instructions", read_member<&Request::instructions>},
    JsonMember<Request>{"max_output_tokens", read_member<&Request::max_tokens>},
    JsonMember<Request>{"stream", read_member<&Request::stream>},
    JsonMember<Request>{"store", read_member<&Request::store>},
    JsonMember<Request>{"previous_response_id", read_member<&Request::previous_response_id>},
    JsonMember<Request>{"tools", read_response_tools},
    JsonMember<Request>{"tool_choice", read_tool_choice},
    JsonMember<Request>{"parallel_tool_calls", read_member<&Request::parallel_tool_calls>},
    JsonMember<Request>{"text", read_text},
    JsonMember<Request>{"reasoning", read_reasoning},
    JsonMember<Request>{"include", read_include},
    JsonMember<Request>{"temperature", read_member<&Request::temperature>},
    JsonMember<Request>{"top_p", read_member<&Request::top_p>},
    JsonMember<Request>{"top_logprobs", read_member<&Request::top_logprobs>},
    JsonMember<Request>{"truncation", read_truncation},
    JsonMember<Request>{"metadata", read_metadata},
    JsonMember<Request>{"user", read_member<&Request::user>},
    // What a hosted service keeps, bills or places by.
    JsonMember<Request>{"stream_options", ignore_object},
    JsonMember<Request>{"service_tier", ignore_text},
    JsonMember<Request>{"safety_identifier", ignore_text},
    JsonMember<Request>{"prompt_cache_key", ignore_text},
    JsonMember<Request>{"prompt_cache_retention", ignore_text},
    JsonMember<Request>{"prompt_cache_options", ignore_object},
    JsonMember<Request>{"max_tool_calls", ignore_integer},  // of tools that the service runs
    // What this server does not do.
    JsonMember<Request>{"background", refuse},
    JsonMember<Request>{"conversation", refuse},
    JsonMember<Request>{"prompt", refuse},
    JsonMember<Request>{"context_management", refuse},
    JsonMember<Request>{"moderation", refuse},
    JsonMember<Request>{"n", refuse},
    JsonMember<Request>{"response_format", refuse},
    JsonMember<Request>{"kv_transfer_params", refuse},
    JsonMember<Request>{"ec_transfer_params", refuse},
    JsonMember<Request>{"previous_input_messages", refuse},
    JsonMember<Request>{"enable_response_messages", refuse},
    JsonMember<Request>{"vllm_xargs", refuse},
    JsonMember<Request>{"watermarking", refuse},
    JsonMember<Request>{"mm_processor_kwargs", refuse},
    JsonMember<Request>{"media_io_kwargs", refuse},
    // vLLM's.
    JsonMember<Request>{"request_id", read_as<read_request_id>},
    JsonMember<Request>{"top_k", read_member<&Request::top_k>},
    JsonMember<Request>{"min_p", read_member<&Request::min_p>},
    JsonMember<Request>{"repetition_penalty", read_member<&Request::repetition_penalty>},
    JsonMember<Request>{"presence_penalty", read_member<&Request::presence_penalty>},
    JsonMember<Request>{"frequency_penalty", read_member<&Request::frequency_penalty>},
    JsonMember<Request>{"seed", read_member<&Request::seed>},
    JsonMember<Request>{"stop", read_as<read_stop>},
    JsonMember<Request>{"stop_token_ids", read_member<&Request::stop_token_ids>},
    JsonMember<Request>{"include_stop_str_in_output",
                        read_member<&Request::include_stop_str_in_output>},
    JsonMember<Request>{"skip_special_tokens", read_member<&Request::skip_special_tokens>},
    JsonMember<Request>{"logit_bias", read_as<read_logit_bias>},
    JsonMember<Request>{"include_reasoning", read_member<&Request::include_reasoning>},
    JsonMember<Request>{"bad_words", read_as<read_bad_words>},
    JsonMember<Request>{"structured_outputs", read_as<read_structured_outputs>},
    JsonMember<Request>{"ignore_eos", read_member<&Request::ignore_eos>},
    JsonMember<Request>{"chat_template_kwargs", read_kwargs},
    JsonMember<Request>{"cache_salt", read_as<read_cache_salt>},
    JsonMember<Request>{"priority", read_member<&Request::priority>},
    JsonMember<Request>{"timeout", read_as<read_generation_timeout>},
};

bool check(JsonReader& reader, Request& out) {
  const auto fail_at = [&](std::string_view name, std::string_view what) {
    return reader.in_member(name, [&] { return reader.fail(what); });
  };
  if (out.messages.empty()) return fail_at("input", "is missing");
  if (out.tool_choice == ToolChoice::automatic && out.tool_names.empty()) out.tool_choice.reset();
  resolve_tool_names(out);
  if (!check_named_tool(reader, out, {"name"}) ||
      !check_allowed_tools(reader, out, AllowedToolsForm::responses)) {
    return false;
  }
  const bool demands_call =
      out.tool_choice == ToolChoice::required || out.tool_choice == ToolChoice::named;
  // The format is that of text, and a call is none: whoever sends both means the call, as vLLM.
  if (demands_call && out.grammar && member_of(*out.grammar) == "text") out.grammar.reset();
  if (out.top_logprobs > 0) out.logprobs = true;
  out.logprobs_of_content = true;
  if (!check_structured(reader, out)) return false;
  return check_chat(reader, out);
}

}  // namespace

Result<ResponsesRequest> parse_responses(std::string_view body) {
  const auto members = parse_json_object(body);
  if (!members) return members.error();
  JsonReader reader;
  ResponsesRequest request;
  request.max_tokens_name = "max_output_tokens";
  request.fits_max_tokens = true;
  request.parameters_at = "parameters";
  request.joins_system = true;
  if (!read_members<Request>(reader, *members, kMembers, request, &request.unknown_members) ||
      !check(reader, request)) {
    return reader.take_error();
  }
  return request;
}

}  // namespace quire::openapi
