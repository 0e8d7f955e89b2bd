#include "server/generation/push_name.h"

#include <algorithm>

#include "base/json.h"

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

}  // namespace

std::string push_name_of(std::string_view body) try {
  // Hardly any request has these words: it is not read twice.
  for (const char* word : {"do_remote_decode", "push", "remote_request_id"})
    if (body.find(word) == body.npos) return {};
  const JsonDocument document(std::string(body), {});
  const auto params = document.object().object({"kv_transfer_params"});
  if (!params || !params->boolean({"do_remote_decode"}).value_or(false)) return {};
  if (params->text({"transfer_mode"}).value_or("") != "push") return {};
  std::string name = params->text({"remote_request_id"}).value_or("");
  return name.size() <= kMostName ? name : std::string();
} catch (const Failure&) {
  return name_in(body);
}

}  // namespace quire
