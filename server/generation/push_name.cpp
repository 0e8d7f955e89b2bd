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
std::string name_in(std::string_view body) {
  constexpr std::string_view kMember = "\"remote_request_id\"", kSpace = " \t\r\n";
  const auto skip = [&](std::string_view what) {
    body.remove_prefix(std::min(body.find_first_not_of(kSpace), body.size()));
    const bool is_there = body.starts_with(what);
    body.remove_prefix(is_there ? what.size() : body.size());
  };
  const std::size_t at = body.find(kMember);
  if (at == body.npos) return {};
  body.remove_prefix(at + kMember.size());
  skip(":");
  skip("\"");
  const std::size_t size = body.find_first_of("\"\\");
  const bool is_name = size != body.npos && body[size] == '"' && size <= kMostName;
  return is_name ? std::string(body.substr(0, size)) : std::string();
}

constexpr std::size_t kMostParams = 1 << 20;  // bytes

// The same document as text again.
void append(std::string& out, const Json& json) {
  bool is_first = true;
  const auto part = [&] {
    if (!std::exchange(is_first, false)) out += ',';
  };
  switch (json.kind()) {
    case Json::Kind::null:
      out += "null";
      return;
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
    case Json::Kind::array:
      out += '[';
      for (const Json& item : json.items()) part(), append(out, item);
      out += ']';
      return;
    case Json::Kind::object:
      out += '{';
      for (const JsonMember& member : json.members()) {
        part();
        append_json_text(out, member.name);
        out += ':';
        append(out, member.value);
      }
      out += '}';
  }
}

// In /inference/v1/generate they may stand elsewhere.
std::optional<Json> transfer_params(const Json& body) {
  if (auto params = body.object({"kv_transfer_params"})) return params;
  const auto sampling = body.object({"sampling_params"});
  const auto extra = sampling ? sampling->object({"extra_args"}) : std::nullopt;
  return extra ? extra->object({"kv_transfer_params"}) : std::nullopt;
}

}  // namespace

std::string push_name_of(std::string_view body) try {
  // Hardly any request has these words: it is not read twice.
  for (const char* word : {"do_remote_decode", "push", "remote_request_id"})
    if (body.find(word) == body.npos) return {};
  const JsonDocument document(std::string(body), {});
  const auto params = transfer_params(document.object());
  if (!params || !params->boolean({"do_remote_decode"}).value_or(false)) return {};
  if (params->text({"transfer_mode"}).value_or("") != "push") return {};
  std::string name = params->text({"remote_request_id"}).value_or("");
  return name.size() <= kMostName ? name : std::string();
} catch (const Failure&) {
  return name_in(body);
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
  std::string text;
  append(text, *params);
  return text.size() <= kMostParams ? text : std::string();
} catch (const Failure&) {
  return {};
}

}  // namespace quire
