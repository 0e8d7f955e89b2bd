#include "server/generation/push_name.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/json.h"
#include "base/json_text.h"

namespace quire {
namespace {

constexpr std::size_t kMostName = 1024;  // bytes

// Of a body that is broken elsewhere: what stands behind the member's name.
std::string name_in(std::string_view body, std::string_view member) {
  constexpr std::string_view kSpace = " \t\r\n";
  const std::string quoted = fmt::format("\"{}\"", member);
  const auto skip = [&](std::string_view what) {
    body.remove_prefix(std::min(body.find_first_not_of(kSpace), body.size()));
    const bool is_there = body.starts_with(what);
    body.remove_prefix(is_there ? what.size() : body.size());
  };
  const std::size_t at = body.find(quoted);
  if (at == body.npos) return {};
  body.remove_prefix(at + quoted.size());
  skip(":");
  skip("\"");
  const std::size_t size = body.find_first_of("\"\\");
  const bool is_name = size != body.npos && body[size] == '"' && size <= kMostName;
  return is_name ? std::string(body.substr(0, size)) : std::string();
}

constexpr std::size_t kMostParams = 8 << 10;  // bytes
// By which whoever keeps a prefill is found and told. Blocks are many, and who reads nothing needs
// none of them.
constexpr std::string_view kTold[] = {
    "do_remote_prefill", "do_remote_decode",      "transfer_mode",
    "remote_host",       "remote_port",           "remote_engine_id",
    "remote_request_id", "remote_num_tokens",     "remote_registration_generation",
    "tp_size",           "remote_bootstrap_addr", "transfer_id"};

// The same as text again, where it has no parts.
void append(std::string& out, const Json& json) {
  switch (json.kind()) {
    case Json::Kind::boolean:
      out += json.as_boolean() ? "true" : "false";
      return;
    case Json::Kind::number:
      if (const auto whole = json.whole_number()) {
        fmt::format_to(std::back_inserter(out), "{}", *whole);
      } else {
        fmt::format_to(std::back_inserter(out), "{}", json.as_number());
      }
      return;
    case Json::Kind::string:
      return append_json_text(out, json.as_string());
    case Json::Kind::null:
    case Json::Kind::array:
    case Json::Kind::object:
      out += "null";
  }
}

// In /inference/v1/generate they may stand elsewhere.
std::optional<Json> transfer_params(const Json& body) {
  if (auto params = body.object({"kv_transfer_params"})) return params;
  const auto sampling = body.object({"sampling_params"});
  const auto extra = sampling ? sampling->object({"extra_args"}) : std::nullopt;
  return extra ? extra->object({"kv_transfer_params"}) : std::nullopt;
}

// Of what asks for a prefill. `is_mode`: only where transfer_mode is "push".
std::string kept_name_of(std::string_view body, const char* member, bool is_mode) try {
  // Hardly any request has these words: it is not read twice.
  for (const char* word : {"do_remote_decode", member, is_mode ? "push" : ""})
    if (body.find(word) == body.npos) return {};
  const JsonDocument document(std::string(body), {});
  const auto params = transfer_params(document.object());
  if (!params || !params->boolean({"do_remote_decode"}).value_or(false)) return {};
  if (is_mode && params->text({"transfer_mode"}).value_or("") != "push") return {};
  std::string name = params->text({member}).value_or("");
  return name.size() <= kMostName ? name : std::string();
} catch (const Failure&) {
  return name_in(body, member);
}

}  // namespace

std::string push_name_of(std::string_view body) {
  return kept_name_of(body, "remote_request_id", true);
}

std::string mooncake_name_of(std::string_view body) {
  return kept_name_of(body, "transfer_id", false);
}

std::string vllm_request_name(std::string_view path, std::string_view id) {
  if (path == "/v1/completions") return fmt::format("cmpl-{}-0", id);
  if (path == "/inference/v1/generate") return fmt::format("generate-tokens-{}", id);
  return fmt::format("chatcmpl-{}", id);
}

std::string nixl_push_name_of(std::string_view path, std::string_view header_id,
                              std::string_view body) try {
  if (body.find("do_remote_decode") == body.npos) return {};
  const JsonDocument document(std::string(body), {});
  const Json object = document.object();
  const auto params = transfer_params(object);
  if (!params || !params->boolean({"do_remote_decode"}).value_or(false)) return {};
  const std::string id =
      header_id.empty() ? object.text({"request_id"}).value_or("") : std::string(header_id);
  return id.empty() || id.size() > kMostName ? std::string() : vllm_request_name(path, id);
} catch (const Failure&) {  // whatever it asks for, it is refused
  return header_id.empty() ? std::string() : vllm_request_name(path, header_id);
}

std::string fetch_params_of(std::string_view body) try {
  if (body.find("do_remote_prefill") == body.npos) return {};
  const JsonDocument document(std::string(body), {});
  const auto params = transfer_params(document.object());
  if (!params || !params->boolean({"do_remote_prefill"}).value_or(false)) return {};
  std::string text = R"({"remote_block_ids":[])";
  for (const JsonMember& member : params->members()) {
    if (std::ranges::find(kTold, member.name) == std::end(kTold)) continue;
    text += ',';
    append_json_text(text, member.name);
    text += ':';
    append(text, member.value);
  }
  text += '}';
  return text.size() <= kMostParams ? text : std::string();
} catch (const Failure&) {
  return {};
}

}  // namespace quire
