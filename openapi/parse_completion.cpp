#include <fmt/format.h>

#include "openapi/dto_json.h"
#include "openapi/parse_chat.h"
#include "openapi/parse_generation.h"

namespace quire::openapi {

namespace {

constexpr std::size_t kMaxPrompts = 1024;

bool read_ids(JsonReader& reader, JsonElement element, CompletionRequest& out) {
  Prompt& prompt = out.prompts.emplace_back();
  prompt.is_text = false;
  return read(reader, element, prompt.ids);
}

bool read_prompt_item(JsonReader& reader, JsonElement element, CompletionRequest& out) {
  if (element.is_array()) return read_ids(reader, element, out);
  if (element.is_string()) return read(reader, element, out.prompts.emplace_back().text);
  return reader.expected("a string or an array of token ids", element);
}

// A string, token ids, or an array of either.
bool read_prompt(JsonReader& reader, JsonElement element, CompletionRequest& out) {
  simdjson::dom::array items;
  if (element.is_string()) return read_prompt_item(reader, element, out);
  if (element.get(items)) return reader.expected("a string or an array", element);
  if (items.size() == 0) return reader.fail("must not be empty");
  if ((*items.begin()).is_number()) return read_ids(reader, element, out);
  if (items.size() > kMaxPrompts) {
    return reader.fail(fmt::format("at most {} prompts, got {}", kMaxPrompts, items.size()));
  }
  std::size_t i = 0;
  for (const JsonElement item : items) {
    if (!reader.in_item(i++, [&] { return read_prompt_item(reader, item, out); })) return false;
  }
  return true;
}

using Completion = CompletionRequest;
constexpr std::array kOwnMembers = {
    JsonMember<Completion>{"prompt", read_prompt},
    JsonMember<Completion>{"suffix", read_member<&Completion::suffix>},
    JsonMember<Completion>{"logprobs", read_member<&Completion::logprobs>},
};
constexpr auto kMembers = joined(kSharedMembers<Completion>, kOwnMembers);

constexpr std::array kTokenizeMembers = {
    JsonMember<TokenizeRequest>{"model", read_member<&TokenizeRequest::model>},
    JsonMember<TokenizeRequest>{"prompt", read_member<&TokenizeRequest::prompt>},
    JsonMember<TokenizeRequest>{"add_special_tokens",
                                read_member<&TokenizeRequest::add_special_tokens>},
    JsonMember<TokenizeRequest>{"return_token_strs",
                                read_member<&TokenizeRequest::return_token_strs>},
};

constexpr std::array kDetokenizeMembers = {
    JsonMember<DetokenizeRequest>{"model", read_member<&DetokenizeRequest::model>},
    JsonMember<DetokenizeRequest>{"tokens", read_member<&DetokenizeRequest::tokens>},
};

// What lies between prompt and suffix is no text that could be repeated, or cut from its left.
bool check_suffix(JsonReader& reader, const Completion& out) {
  const auto fail = [&](std::string_view what) {
    return reader.in_member("suffix", [&] { return reader.fail(what); });
  };
  if (out.suffix.empty()) return true;
  if (out.echo) return fail("cannot be combined with echo");
  if (out.truncate_prompt_tokens) return fail("cannot be combined with truncate_prompt_tokens");
  for (const Prompt& prompt : out.prompts) {
    if (!prompt.is_text) return fail("needs a prompt of text");
  }
  return true;
}

// Members of chat that would change the answer: who sends them means the other endpoint.
bool refuse_chat_members(JsonReader& reader, simdjson::dom::object object) {
  for (const std::string_view name : {"messages", "tools", "max_completion_tokens", "chat_template"}) {
    JsonElement element;
    if (object[name].get(element) || !asks_for_something(element)) continue;
    return reader.in_member(name, [&] {
      return reader.fail(name == "max_completion_tokens"
                             ? "is a member of /v1/chat/completions; here it is called max_tokens"
                             : "is a member of /v1/chat/completions; this is /v1/completions");
    });
  }
  return true;
}

bool read_completion(JsonReader& reader, simdjson::dom::object object, Completion& out) {
  const auto fail_at = [&](std::string_view name, std::string_view what) {
    return reader.in_member(name, [&] { return reader.fail(what); });
  };
  if (!read_members<Completion>(reader, object, kMembers, out, &out.unknown_members)) return false;
  if (!refuse_chat_members(reader, object) || !check_generation(reader, object, out)) return false;
  std::erase(out.unsupported, "suffix");  // of chat alone
  if (out.prompts.empty()) return fail_at("prompt", "is missing");
  for (const Prompt& prompt : out.prompts) {
    if (!prompt.is_text && prompt.ids.empty()) return fail_at("prompt", "must not be empty");
  }
  // Who wants the prompt too wants what it was given, as in vLLM.
  if (out.echo && !out.stream && !out.prompt_logprobs) out.prompt_logprobs = out.logprobs;
  return check_suffix(reader, out) && check_logprobs(reader, "logprobs", out.logprobs);
}

}  // namespace

Result<CompletionRequest> parse_completion(std::string_view body) {
  const auto object = parse_json_object(body);
  if (!object) return object.error();
  JsonReader reader;
  CompletionRequest request;
  if (!read_completion(reader, *object, request)) return reader.take_error();
  return request;
}

Result<TokenizeRequest> parse_tokenize(std::string_view body) {
  const auto object = parse_json_object(body);
  if (!object) return object.error();
  JsonReader reader;
  TokenizeRequest request;
  if (!read_members<TokenizeRequest>(reader, *object, kTokenizeMembers, request)) {
    return reader.take_error();
  }
  if (JsonElement messages; !(*object)["messages"].get(messages)) {
    if (!read_chat_members(reader, *object, request.chat.emplace())) return reader.take_error();
  }
  if (request.prompt.has_value() == request.chat.has_value()) {
    reader.fail("exactly one of prompt and messages is required");
    return reader.take_error();
  }
  return request;
}

Result<DetokenizeRequest> parse_detokenize(std::string_view body) {
  const auto object = parse_json_object(body);
  if (!object) return object.error();
  JsonReader reader;
  DetokenizeRequest request;
  if (!read_members<DetokenizeRequest>(reader, *object, kDetokenizeMembers, request)) {
    return reader.take_error();
  }
  if (JsonElement tokens; (*object)["tokens"].get(tokens) || tokens.is_null()) {
    reader.in_member("tokens", [&] { return reader.fail("is missing"); });
    return reader.take_error();
  }
  return request;
}

}  // namespace quire::openapi
