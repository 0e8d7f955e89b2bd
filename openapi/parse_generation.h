#pragma once
// The members that chat and completion requests share; only openapi/*.cpp include it.

#include <array>
#include <cstdint>

#include "openapi/dto.h"
#include "openapi/json_reader.h"

namespace quire::openapi {

using ReadGeneration = bool (*)(JsonReader&, JsonElement, GenerationRequest&);

bool read_stop(JsonReader& reader, JsonElement element, GenerationRequest& out);
bool read_allowed_tokens(JsonReader& reader, JsonElement element, GenerationRequest& out);
bool read_cache_salt(JsonReader& reader, JsonElement element, GenerationRequest& out);
bool read_logit_bias(JsonReader& reader, JsonElement element, GenerationRequest& out);
bool read_stream_options(JsonReader& reader, JsonElement element, GenerationRequest& out);
// In parse_structured.cpp.
bool read_response_format(JsonReader& reader, JsonElement element, GenerationRequest& out);
bool read_structured_outputs(JsonReader& reader, JsonElement element, GenerationRequest& out);
bool read_guided_json(JsonReader& reader, JsonElement element, GenerationRequest& out);
bool read_guided_regex(JsonReader& reader, JsonElement element, GenerationRequest& out);
bool read_guided_choice(JsonReader& reader, JsonElement element, GenerationRequest& out);
bool read_guided_grammar(JsonReader& reader, JsonElement element, GenerationRequest& out);
bool read_guided_whitespace(JsonReader& reader, JsonElement element, GenerationRequest& out);
bool read_bad_words(JsonReader& reader, JsonElement element, GenerationRequest& out);
bool read_thinking_budget(JsonReader& reader, JsonElement element, GenerationRequest& out);
bool read_thinking_token_budget(JsonReader& reader, JsonElement element, GenerationRequest& out);
// The request's member that it came in.
std::string_view member_of(const OutputGrammar& grammar);
// White space is free where there is JSON.
bool check_structured(JsonReader& reader, const GenerationRequest& request);

// Seconds, above 0 and at most a day.
bool read_timeout(JsonReader& reader, JsonElement element, std::optional<double>& out);
bool read_generation_timeout(JsonReader& reader, JsonElement element, GenerationRequest& out);

// At most kMaxRequestIdBytes: each chunk of a stream repeats it.
bool read_request_id(JsonReader& reader, JsonElement element, GenerationRequest& out);
bool read_transfer_params(JsonReader& reader, JsonElement element, GenerationRequest& out);
bool read_truncation_side(JsonReader& reader, JsonElement element, GenerationRequest& out);
bool check_stream_interval(JsonReader& reader, JsonElement element, GenerationRequest&);

// False of null, false, 0, [], {} and "".
bool asks_for_something(JsonElement element);

// JSON text of a member that goes elsewhere as it is.
bool read_raw_object(JsonReader& reader, JsonElement element, std::string& out);
bool read_raw_array(JsonReader& reader, JsonElement element, std::string& out);

inline constexpr std::size_t kMaxRequestIdBytes = 256;
inline constexpr std::int64_t kMaxLogprobs = 20;  // start-up plans memory for this many
// From 0 to kMaxLogprobs.
bool check_logprobs(JsonReader& reader, std::string_view name, std::optional<std::int64_t> count);

template <class T, auto... Members>
constexpr std::array<JsonMember<T>, sizeof...(Members)> members_by_type(FieldList<Members...>) {
  return {JsonMember<T>{spelling_of<Members>(), read_member<Members>}...};
}

template <class T>
constexpr std::array kOtherSharedMembers = {
    JsonMember<T>{"model", read_member<&GenerationRequest::model>},
    JsonMember<T>{"request_id", read_as<read_request_id>},
    JsonMember<T>{"stream", read_member<&GenerationRequest::stream>},
    JsonMember<T>{"stream_options", read_as<read_stream_options>},
    JsonMember<T>{"n", read_member<&GenerationRequest::n>},
    JsonMember<T>{"max_tokens", read_member<&GenerationRequest::max_tokens>},
    JsonMember<T>{"logit_bias", read_as<read_logit_bias>},
    JsonMember<T>{"allowed_token_ids", read_as<read_allowed_tokens>},
    JsonMember<T>{"stop", read_as<read_stop>},
    JsonMember<T>{"include_stop_str_in_output",
                  read_member<&GenerationRequest::include_stop_str_in_output>},
    JsonMember<T>{"skip_special_tokens", read_member<&GenerationRequest::skip_special_tokens>},
    JsonMember<T>{"spaces_between_special_tokens",
                  read_member<&GenerationRequest::spaces_between_special_tokens>},
    JsonMember<T>{"echo", read_member<&GenerationRequest::echo>},
    JsonMember<T>{"add_special_tokens", read_member<&GenerationRequest::add_special_tokens>},
    JsonMember<T>{"truncate_prompt_tokens",
                  read_member<&GenerationRequest::truncate_prompt_tokens>},
    JsonMember<T>{"truncation_side", read_as<read_truncation_side>},
    JsonMember<T>{"stream_interval", read_as<check_stream_interval>},
    JsonMember<T>{"priority", read_member<&GenerationRequest::priority>},
    JsonMember<T>{"timeout", read_as<read_generation_timeout>},
    JsonMember<T>{"cache_salt", read_as<read_cache_salt>},
    JsonMember<T>{"kv_transfer_params", read_as<read_transfer_params>},
    JsonMember<T>{"prompt_logprobs", read_member<&GenerationRequest::prompt_logprobs>},
    JsonMember<T>{"return_token_ids", read_member<&GenerationRequest::return_token_ids>},
    JsonMember<T>{"return_tokens_as_token_ids",
                  read_member<&GenerationRequest::return_tokens_as_token_ids>},
    JsonMember<T>{"response_format", read_as<read_response_format>},
    JsonMember<T>{"structured_outputs", read_as<read_structured_outputs>},
    JsonMember<T>{"guided_json", read_as<read_guided_json>},
    JsonMember<T>{"guided_regex", read_as<read_guided_regex>},
    JsonMember<T>{"guided_choice", read_as<read_guided_choice>},
    JsonMember<T>{"guided_grammar", read_as<read_guided_grammar>},
    JsonMember<T>{"guided_whitespace_pattern", read_as<read_guided_whitespace>},
    JsonMember<T>{"bad_words", read_as<read_bad_words>},
    JsonMember<T>{"thinking_budget", read_as<read_thinking_budget>},
    JsonMember<T>{"thinking_token_budget", read_as<read_thinking_token_budget>},
};
template <class T>
constexpr auto kSharedMembers = joined(members_by_type<T>(GenerationRequest::SamplingFields()),
                                       kOtherSharedMembers<T>);

// After the tables: what they did not name, sorted into refused and ignored, and the checks between
// members.
bool check_generation(JsonReader& reader, simdjson::dom::object object, GenerationRequest& request);

}  // namespace quire::openapi
