// Answers as OpenAI's Responses API words them.

#include <algorithm>

#include "openapi/chat_terms.h"
#include "openapi/dto_json.h"
#include "openapi/json_writer.h"
#include "openapi/responses.h"

namespace quire::openapi {

namespace {

using Kind = ResponseItem::Kind;

void write_logprob(JsonWriter& json, const TopLogprob& entry) {
  json.key("token")
      .string(entry.token)
      .key("logprob")
      .number(std::max(entry.logprob, kLowestLogprob));
  json.key("bytes").begin_array();
  for (const char byte : entry.bytes) json.integer(static_cast<unsigned char>(byte));
  json.end_array();
}

void write_logprobs(JsonWriter& json, const std::vector<TokenLogprob>& tokens) {
  json.begin_array();
  for (const TokenLogprob& token : tokens) {
    json.begin_object();
    write_logprob(json, token);
    json.key("top_logprobs").begin_array();
    for (const TopLogprob& top : token.top) {
      json.begin_object();
      write_logprob(json, top);
      json.end_object();
    }
    json.end_array().end_object();
  }
  json.end_array();
}

void write_part(JsonWriter& json, const ResponseItem& item) {
  json.begin_object();
  if (item.kind == Kind::reasoning) {
    json.key("type").string("reasoning_text").key("text").string(item.text);
  } else {
    json.key("type").string("output_text").key("text").string(item.text);
    json.key("annotations").begin_array().end_array().key("logprobs");
    write_logprobs(json, item.logprobs);
  }
  json.end_object();
}

// An item that has only been announced has no part yet.
void write_parts(JsonWriter& json, const ResponseItem& item) {
  json.begin_array();
  if (!item.text.empty() || item.status != "in_progress") write_part(json, item);
  json.end_array();
}

void write_called(JsonWriter& json, std::string_view type, const ResponseItem& item) {
  json.string(type).key("call_id").string(item.call_id).key("name").string(item.name);
  if (!item.name_space.empty()) json.key("namespace").string(item.name_space);
}

void write_item(JsonWriter& json, const ResponseItem& item) {
  json.begin_object().key("id").string(item.id).key("type");
  switch (item.kind) {
    case Kind::reasoning:
      json.string("reasoning").key("summary").begin_array().end_array().key("content");
      write_parts(json, item);
      json.key("encrypted_content").null();
      break;
    case Kind::message:
      json.string("message").key("role").string("assistant").key("content");
      write_parts(json, item);
      break;
    case Kind::function_call:
      write_called(json, "function_call", item);
      json.key("arguments").string(item.arguments);
      break;
    case Kind::custom_tool_call:
      write_called(json, "custom_tool_call", item);
      json.key("input");
      json.string(item.status == "in_progress" ? "" : text_of_arguments(item.arguments));
      break;
  }
  json.key("status").string(item.status).end_object();
}

void write_text(JsonWriter& json, std::string_view key, const std::optional<std::string>& text) {
  json.key(key);
  text ? json.string(*text) : json.null();
}

void write_said(JsonWriter& json, std::string_view key, const std::string& said,
                std::string_view otherwise) {
  json.key(key).raw(said.empty() ? otherwise : said);
}

void write_usage(JsonWriter& json, const Usage& usage) {
  json.begin_object().key("input_tokens").integer(usage.prompt_tokens);
  json.key("input_tokens_details").begin_object();
  json.key("cached_tokens").integer(usage.cached_tokens.value_or(0));
  json.key("cache_write_tokens").integer(0).end_object();
  json.key("output_tokens").integer(usage.completion_tokens);
  json.key("output_tokens_details").begin_object();
  json.key("reasoning_tokens").integer(usage.reasoning_tokens.value_or(0)).end_object();
  json.key("total_tokens").integer(usage.prompt_tokens + usage.completion_tokens).end_object();
}

void write_end(JsonWriter& json, const ResponseObject& response) {
  json.key("completed_at");
  response.completed ? json.integer(*response.completed) : json.null();
  json.key("error");
  if (response.status == "failed") {
    json.begin_object().key("code").string("server_error");
    json.key("message").string(response.error).end_object();
  } else {
    json.null();
  }
  json.key("incomplete_details");
  if (response.status == "incomplete") {
    json.begin_object().key("reason").string("max_output_tokens").end_object();
  } else {
    json.null();
  }
}

void write_wishes(JsonWriter& json, const ResponsesRequest& request) {
  write_text(json, "instructions", request.instructions);
  json.key("max_output_tokens");
  request.max_tokens ? json.integer(*request.max_tokens) : json.null();
  write_said(json, "metadata", request.said_metadata, "{}");
  json.key("parallel_tool_calls").boolean(request.parallel_tool_calls);
  write_text(json, "previous_response_id", request.previous_response_id);
  json.key("reasoning").begin_object();
  write_text(json, "effort", request.reasoning_effort);
  write_text(json, "summary", request.reasoning_summary);
  json.end_object();
  json.key("store").boolean(request.store);
  write_said(json, "text", request.said_text, R"({"format":{"type":"text"}})");
  write_said(json, "tool_choice", request.said_tool_choice, "\"auto\"");
  write_said(json, "tools", request.said_tools, "[]");
  json.key("top_logprobs").integer(request.top_logprobs);
  json.key("truncation").string("disabled");
  write_text(json, "user", request.user);
}

}  // namespace

void append_response(std::string& out, const ResponsesRequest& request,
                     const ResponseObject& response) {
  JsonWriter json(out);
  json.begin_object().key("id").string(response.id).key("object").string("response");
  json.key("created_at").integer(response.created).key("model").string(response.model);
  json.key("status").string(response.status).key("background").boolean(false);
  write_end(json, response);
  json.key("output").begin_array();
  for (const ResponseItem& item : response.output) write_item(json, item);
  json.end_array();
  write_wishes(json, request);
  json.key("temperature").number(response.temperature).key("top_p").number(response.top_p);
  json.key("service_tier").string("default").key("usage");
  if (response.usage) {
    write_usage(json, *response.usage);
  } else {
    json.null();
  }
  json.end_object();
}

void append_response_item(std::string& out, const ResponseItem& item) {
  JsonWriter json(out);
  write_item(json, item);
}

void append_response_part(std::string& out, const ResponseItem& item) {
  JsonWriter json(out);
  write_part(json, item);
}

void append_response_logprobs(std::string& out, const std::vector<TokenLogprob>& tokens) {
  JsonWriter json(out);
  write_logprobs(json, tokens);
}

std::string input_tokens_json(std::int64_t tokens) {
  return "{\"object\":\"response.input_tokens\",\"input_tokens\":" + std::to_string(tokens) + "}";
}

std::string deleted_response_json(std::string_view id) {
  std::string out;
  JsonWriter(out)
      .begin_object()
      .key("id")
      .string(id)
      .key("object")
      .string("response")
      .key("deleted")
      .boolean(true)
      .end_object();
  return out;
}

ChatMessage message_of(const std::vector<ResponseItem>& output) {
  ChatMessage message;
  message.role = "assistant";
  for (const ResponseItem& item : output) {
    if (item.kind == Kind::reasoning) add_text(message.reasoning, item.text);
    if (item.kind == Kind::message) add_text(message.content, item.text);
    if (item.is_call()) {
      message.tool_calls.push_back({item.call_id, {item.function, item.arguments}});
    }
  }
  return message;
}

}  // namespace quire::openapi
