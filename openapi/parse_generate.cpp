// POST /inference/v1/generate, vLLM's way to send tokens: what it asks for is a completion.

#include "openapi/generate.h"
#include "openapi/parse_generation.h"

namespace quire::openapi {

namespace {

using simdjson::dom::object;
using Completion = GenerateRequest;

bool ignore_boolean(JsonReader& reader, JsonElement element, Completion&) {
  return element.is_bool() || reader.expected("a boolean", element);
}
bool ignore_number(JsonReader& reader, JsonElement element, Completion&) {
  return element.is_number() || reader.expected("a number", element);
}
bool refuse(JsonReader& reader, JsonElement element, Completion&) {
  return !asks_for_something(element) || reader.fail("is not supported by this server");
}

bool refuse_here(JsonReader& reader, JsonElement element, Completion&) {
  return !asks_for_something(element) ||
         reader.fail("is not read here; what the answer must be like stands in "
                     "sampling_params.structured_outputs");
}
bool refuse_old_name(JsonReader& reader, JsonElement element, Completion&) {
  return !asks_for_something(element) || reader.fail("is called structured_outputs");
}

constexpr std::array kExtraMembers = {
    JsonMember<Completion>{"kv_transfer_params", read_as<read_transfer_params>},
};

bool read_extra_args(JsonReader& reader, JsonElement element, Completion& out) {
  object extra;
  if (element.get(extra)) return reader.expected("an object", element);
  return read_members<Completion>(reader, extra, kExtraMembers, out, &out.unknown_members);
}

constexpr std::array kOwnSamplingMembers = {
    JsonMember<Completion>{"logprobs", read_member<&Completion::logprobs>},
    JsonMember<Completion>{"extra_args", read_extra_args},
    JsonMember<Completion>{"guided_decoding", refuse_old_name},
    JsonMember<Completion>{"logprob_token_ids", refuse},
    JsonMember<Completion>{"skip_reading_prefix_cache", refuse},
    JsonMember<Completion>{"flat_logprobs", refuse},
    // How vLLM's own front end takes the output.
    JsonMember<Completion>{"detokenize", ignore_boolean},
    JsonMember<Completion>{"output_kind", ignore_number},
};
constexpr auto kSamplingMembers = joined(kSharedMembers<Completion>, kOwnSamplingMembers);

bool read_sampling_params(JsonReader& reader, JsonElement element, Completion& out) {
  object params;
  if (element.get(params)) return reader.expected("an object", element);
  return read_members<Completion>(reader, params, kSamplingMembers, out, &out.unknown_members);
}

// When all has been read: stream stands beside the parameters.
bool check_sampling_params(JsonReader& reader, object request, Completion& out) {
  object params;
  if (request["sampling_params"].get(params)) {
    return reader.in_member("sampling_params", [&] { return reader.fail("is missing"); });
  }
  return reader.in_member("sampling_params", [&] {
    if (out.echo) return reader.in_member("echo", [&] { return reader.fail("is of text alone"); });
    return check_generation(reader, params, out) &&
           check_logprobs(reader, "logprobs", out.logprobs);
  });
}

bool read_token_ids(JsonReader& reader, JsonElement element, Completion& out) {
  Prompt& prompt = out.prompts.emplace_back();
  prompt.is_text = false;
  return read(reader, element, prompt.ids) &&
         (!prompt.ids.empty() || reader.fail("must not be empty"));
}

bool read_output_mode(JsonReader& reader, JsonElement element, Completion& out) {
  std::string_view mode;
  if (element.get(mode)) return reader.expected("a string", element);
  out.wants_text = mode == "text";
  if (mode == "text" || mode == "tokens") return true;
  return reader.fail("must be tokens or text; derender is not offered here");
}

// What a constraint rules begins with the first token.
bool read_reasoning_ended(JsonReader& reader, JsonElement element, Completion&) {
  bool ended;
  if (element.get(ended)) return reader.expected("a boolean", element);
  return ended || reader.fail("false is not offered: nothing is taken for a thought here");
}

bool ignore_object(JsonReader& reader, JsonElement element, Completion&) {
  return element.is_object() || reader.expected("an object", element);
}

constexpr std::array kMembers = {
    JsonMember<Completion>{"output_mode", read_output_mode},
    JsonMember<Completion>{"return_token_ids", read_member<&Completion::return_token_ids>},
    JsonMember<Completion>{"reasoning_ended", read_reasoning_ended},
    JsonMember<Completion>{"parse_context", ignore_object},  // read by derender alone
    JsonMember<Completion>{"reasoning_parser_kwargs", refuse},
    JsonMember<Completion>{"content_parts", refuse},
    JsonMember<Completion>{"ec_transfer_params", refuse},
    JsonMember<Completion>{"model", read_member<&Completion::model>},
    JsonMember<Completion>{"request_id", read_as<read_request_id>},
    JsonMember<Completion>{"token_ids", read_token_ids},
    JsonMember<Completion>{"sampling_params", read_sampling_params},
    JsonMember<Completion>{"stream", read_member<&Completion::stream>},
    JsonMember<Completion>{"stream_options", read_as<read_stream_options>},
    JsonMember<Completion>{"cache_salt", read_as<read_cache_salt>},
    JsonMember<Completion>{"priority", read_member<&Completion::priority>},
    JsonMember<Completion>{"timeout", read_as<read_generation_timeout>},
    JsonMember<Completion>{"kv_transfer_params", read_as<read_transfer_params>},
    JsonMember<Completion>{"features", refuse},  // of images
    JsonMember<Completion>{"response_format", refuse_here},
    JsonMember<Completion>{"structured_outputs", refuse_here},
    JsonMember<Completion>{"guided_json", refuse_here},
    JsonMember<Completion>{"guided_regex", refuse_here},
    JsonMember<Completion>{"guided_choice", refuse_here},
    JsonMember<Completion>{"guided_grammar", refuse_here},
};

}  // namespace

Result<GenerateRequest> parse_generate(std::string_view body) {
  const auto members = parse_json_object(body);
  if (!members) return members.error();
  JsonReader reader;
  GenerateRequest request;
  const auto check_ids = [&] { return !request.prompts.empty() || reader.fail("is missing"); };
  const bool ok =
      read_members<Completion>(reader, *members, kMembers, request, &request.unknown_members) &&
      reader.in_member("token_ids", check_ids) && check_sampling_params(reader, *members, request);
  if (!ok) return reader.take_error();
  return request;
}

}  // namespace quire::openapi
