#include "openapi/parse_generation.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "openapi/ignored_members.h"

namespace quire::openapi {

namespace {

constexpr std::size_t kMaxStopStrings = 256;
constexpr std::int64_t kMaxChoices = 128;
constexpr double kMaxBias = 100;

// Members that ask for something this server does not do. An answer that ignored them would be
// wrong without saying so.
constexpr std::string_view kUnsupported[] = {
    "use_beam_search", "suffix",         "logits_processors",    "prompt_embeds",
    "functions",       "function_call",  "audio",                "structural_tag",
    "vllm_xargs",      "mm_processor_kwargs", "media_io_kwargs", "logprob_token_ids",
    "return_prompt_text", "return_token_offsets", "return_weight_versions", "watermarking",
    "ec_transfer_params",
};
// Those whose empty object asks too: for the defaults of what it names.
constexpr std::string_view kUnsupportedEvenEmpty[] = {"web_search_options", "repetition_detection"};

}  // namespace

bool asks_for_something(JsonElement element) {
  bool flag;
  std::int64_t number;
  std::string_view text;
  simdjson::dom::array items;
  simdjson::dom::object object;
  if (element.is_null()) return false;
  if (!element.get(flag)) return flag;
  if (!element.get(text)) return !text.empty();
  if (!element.get(items)) return items.size() > 0;
  if (!element.get(object)) return object.size() > 0;
  if (!element.get(number)) return number != 0;
  return true;
}

namespace {

// As many candidates as choices are the choices.
bool check_best_of(JsonReader& reader, simdjson::dom::object object, GenerationRequest& request) {
  JsonElement element;
  if (object["best_of"].get(element) || element.is_null()) return true;
  return reader.in_member("best_of", [&] {
    std::int64_t best_of = 0;
    if (!read(reader, element, best_of)) return false;
    if (best_of < request.n) return reader.fail(fmt::format("must be at least n, {}", request.n));
    if (best_of > request.n) request.unsupported.emplace_back("best_of");
    return true;
  });
}

}  // namespace

bool read_allowed_tokens(JsonReader& reader, JsonElement element, GenerationRequest& out) {
  if (!read(reader, element, out.allowed_token_ids)) return false;
  return !out.allowed_token_ids.empty() || reader.fail("must not be empty: nothing could follow");
}

// An empty one would share the cache with everybody, which is not what a salt is for.
bool read_cache_salt(JsonReader& reader, JsonElement element, GenerationRequest& out) {
  if (!read(reader, element, out.cache_salt)) return false;
  return !out.cache_salt.empty() || reader.fail("must not be empty");
}

bool read_stop(JsonReader& reader, JsonElement element, GenerationRequest& out) {
  if (element.is_string()) {
    if (!read(reader, element, out.stop.emplace_back())) return false;
  } else if (!element.is_array()) {
    return reader.expected("a string or an array of strings", element);
  } else if (!read(reader, element, out.stop)) {
    return false;
  }
  if (out.stop.size() > kMaxStopStrings) {
    return reader.fail(fmt::format("at most {} stop strings", kMaxStopStrings));
  }
  for (const std::string& stop : out.stop) {
    if (stop.empty()) return reader.fail("a stop string must not be empty");
  }
  return true;
}

bool read_logit_bias(JsonReader& reader, JsonElement element, GenerationRequest& out) {
  simdjson::dom::object biases;
  if (element.get(biases)) return reader.expected("an object", element);
  for (const auto [key, value] : biases) {
    TokenId token = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), token);
    if (error != std::errc{} || end != key.data() + key.size() || token < 0) {
      return reader.fail(fmt::format("\"{}\" is not a token id", key.substr(0, 40)));
    }
    double bias = 0;
    if (!reader.in_member(key, [&] { return read(reader, value, bias); })) return false;
    out.logit_bias.emplace_back(token, std::clamp(bias, -kMaxBias, kMaxBias));
  }
  return true;
}

bool read_stream_options(JsonReader& reader, JsonElement element, GenerationRequest& out) {
  static constexpr std::array kMembers = {
      JsonMember<StreamOptions>{"include_usage", read_member<&StreamOptions::include_usage>},
      JsonMember<StreamOptions>{"continuous_usage_stats",
                                read_member<&StreamOptions::continuous_usage_stats>},
  };
  simdjson::dom::object object;
  if (element.get(object)) return reader.expected("an object", element);
  return read_members<StreamOptions>(reader, object, kMembers, out.stream_options.emplace());
}

bool read_request_id(JsonReader& reader, JsonElement element, GenerationRequest& out) {
  if (!read(reader, element, out.request_id)) return false;
  if (!out.request_id || out.request_id->size() <= kMaxRequestIdBytes) return true;
  return reader.fail(fmt::format("has {} bytes, may have {}", out.request_id->size(), kMaxRequestIdBytes));
}

bool read_timeout(JsonReader& reader, JsonElement element, std::optional<double>& out) {
  if (!read(reader, element, out)) return false;
  if (*out > 0 && *out <= kMaxTimeoutSeconds) return true;
  return reader.fail(
      fmt::format("must be a number of seconds above 0, at most {}", kMaxTimeoutSeconds));
}

bool read_generation_timeout(JsonReader& reader, JsonElement element, GenerationRequest& out) {
  return read_timeout(reader, element, out.timeout);
}

// vLLM keeps the prompt's end unless it is told otherwise.
bool read_truncation_side(JsonReader& reader, JsonElement element, GenerationRequest& out) {
  std::string side;
  if (!read(reader, element, side)) return false;
  out.truncates_right = side == "right";
  return out.truncates_right || side == "left" || reader.fail("must be left or right");
}

// Tokens leave as they come; what a client cannot keep up with is joined by itself.
bool check_stream_interval(JsonReader& reader, JsonElement element, GenerationRequest&) {
  std::int64_t tokens = 0;
  return read(reader, element, tokens) &&
         (tokens == 1 || reader.fail("must be 1: tokens are sent as they come"));
}

bool read_transfer_params(JsonReader& reader, JsonElement element, GenerationRequest& out) {
  return read_raw_object(reader, element, out.kv_transfer_params);
}

bool read_raw_object(JsonReader& reader, JsonElement element, std::string& out) {
  if (!element.is_object()) return reader.expected("an object", element);
  out = reader.text(element);
  return true;
}

bool read_raw_array(JsonReader& reader, JsonElement element, std::string& out) {
  if (!element.is_array()) return reader.expected("an array", element);
  out = reader.text(element);
  return true;
}

bool check_generation(JsonReader& reader, simdjson::dom::object object,
                      GenerationRequest& request) {
  const auto fail_at = [&](std::string_view name, std::string_view what) {
    return reader.in_member(name, [&] { return reader.fail(what); });
  };
  for (const std::string_view name : kUnsupported) {
    JsonElement element;
    if (!object[name].get(element) && asks_for_something(element)) {
      request.unsupported.emplace_back(name);
    }
  }
  for (const std::string_view name : kUnsupportedEvenEmpty) {
    JsonElement element;
    if (!object[name].get(element) && !element.is_null()) request.unsupported.emplace_back(name);
  }
  if (request.stream_options && !request.stream) {
    return fail_at("stream_options", "only allowed when stream is true");
  }
  if (request.n < 1 || request.n > kMaxChoices) {
    return fail_at("n", fmt::format("must be between 1 and {}, got {}", kMaxChoices, request.n));
  }
  if (const auto keep = request.truncate_prompt_tokens; keep && *keep < 1 && *keep != -1) {
    return fail_at("truncate_prompt_tokens",
                   "must be at least 1, or -1 (what the context leaves beside the output)");
  }
  if (!check_logprobs(reader, "prompt_logprobs", request.prompt_logprobs)) return false;
  if (request.prompt_logprobs && request.stream) {
    return fail_at("prompt_logprobs", "not available when stream is true");
  }
  return check_structured(reader, request) && check_best_of(reader, object, request) &&
         check_ignored(reader, object, request);
}

bool check_logprobs(JsonReader& reader, std::string_view name, std::optional<std::int64_t> count) {
  if (!count || (*count >= 0 && *count <= kMaxLogprobs)) return true;
  const std::string_view all = *count == -1 ? " (-1, the whole vocabulary, is not offered)" : "";
  return reader.in_member(name, [&] {
    return reader.fail(fmt::format("must be between 0 and {}{}, got {}", kMaxLogprobs, all, *count));
  });
}

}  // namespace quire::openapi
