#include "server/generation/push_name.h"

#include "base/json.h"

namespace quire {

std::string push_name_of(std::string_view body) try {
  // Hardly any request has these words: it is not read twice.
  for (const char* word : {"do_remote_decode", "push", "remote_request_id"})
    if (body.find(word) == body.npos) return {};
  constexpr std::size_t kMostName = 1024;  // bytes
  const JsonDocument document(std::string(body), {});
  const auto params = document.object().object({"kv_transfer_params"});
  if (!params || !params->boolean({"do_remote_decode"}).value_or(false)) return {};
  if (params->text({"transfer_mode"}).value_or("") != "push") return {};
  std::string name = params->text({"remote_request_id"}).value_or("");
  return name.size() <= kMostName ? name : std::string();
} catch (const Failure&) {
  return {};
}

}  // namespace quire
