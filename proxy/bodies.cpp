#include "proxy/bodies.h"

#include <boost/json.hpp>

namespace quire::proxy {
namespace {

namespace json = boost::json;

// Members of any size and depth pass through: the server decides about them.
std::optional<json::object> parse_object(const std::string& text) {
  json::parse_options options;
  options.max_depth = 256;
  json::error_code error;
  json::value value = json::parse(text, error, {}, options);
  if (error || !value.is_object()) return std::nullopt;
  return std::move(value.get_object());
}

bool is_absent(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(name);
  return value == nullptr || value->is_null();
}

bool is_shareable(const json::object& request) {
  for (const char* name : {"prompt_logprobs", "echo", "best_of", "kv_transfer_params"})
    if (!is_absent(request, name)) return false;
  const json::value* n = request.if_contains("n");
  if (n != nullptr && !n->is_null() && *n != json::value(1)) return false;
  // Cut to what the answer leaves of the context, which is more where it has one token.
  const json::value* cut = request.if_contains("truncate_prompt_tokens");
  if (cut != nullptr && cut->is_int64() && cut->get_int64() < 0) return false;
  const json::value* prompt = request.if_contains("prompt");
  if (prompt == nullptr || !prompt->is_array()) return true;
  const json::array& parts = prompt->get_array();  // of token ids, or several prompts
  return !parts.empty() && parts.front().is_number();
}

}  // namespace

std::optional<std::string> body_for_prefill(std::string_view target, const std::string& body,
                                            const std::string& push_name) {
  if (target != "/v1/chat/completions" && target != "/v1/completions") return std::nullopt;
  auto request = parse_object(body);
  if (!request || !is_shareable(*request)) return std::nullopt;
  (*request)["stream"] = false;
  request->erase("stream_options");
  request->erase("min_tokens");
  (*request)["max_tokens"] = 1;
  if (request->contains("max_completion_tokens")) (*request)["max_completion_tokens"] = 1;
  json::object params{{"do_remote_decode", true},    {"do_remote_prefill", false},
                      {"remote_engine_id", nullptr}, {"remote_block_ids", nullptr},
                      {"remote_host", nullptr},      {"remote_port", nullptr}};
  if (!push_name.empty()) {
    params["transfer_mode"] = "push";
    params["remote_request_id"] = push_name;
  }
  (*request)["kv_transfer_params"] = std::move(params);
  return json::serialize(*request);
}

bool is_answer(const std::string& body) { return parse_object(body).has_value(); }

std::string kept_params(const std::string& answer) {
  const auto object = parse_object(answer);
  if (!object) return {};
  const json::value* params = object->if_contains("kv_transfer_params");
  return params != nullptr && params->is_object() ? json::serialize(*params) : "";
}

std::optional<KvPlace> kept_place(const std::string& answer) {
  const auto object = parse_object(answer);
  const json::value* params = object ? object->if_contains("kv_transfer_params") : nullptr;
  if (params == nullptr || !params->is_object()) return std::nullopt;
  const json::object& kept = params->get_object();
  const json::value* blocks = kept.if_contains("remote_block_ids");
  const json::value* engine = kept.if_contains("remote_engine_id");
  const json::value* ranks = kept.if_contains("tp_size");
  const json::value* mode = kept.if_contains("transfer_mode");
  const json::value* name = kept.if_contains("remote_request_id");
  // One that is pushed by a name that is not the proxy's goes over NIXL.
  const bool is_nixl = mode != nullptr && *mode == json::value("push") && name != nullptr &&
                       name->is_string() && !name->get_string().starts_with(kPushName) &&
                       engine != nullptr && engine->is_string();
  const json::value* host = kept.if_contains("remote_host");
  const json::value* port = kept.if_contains("remote_port");
  const bool is_ours = kept.contains("remote_num_tokens") && blocks != nullptr &&
                       blocks->is_array() && blocks->get_array().empty();
  if (!(is_ours || is_nixl) || host == nullptr || !host->is_string() || port == nullptr ||
      !port->is_int64())
    return std::nullopt;
  KvPlace place{std::string(host->get_string()), port->get_int64()};
  if (is_nixl) place.engine = std::string(engine->get_string());
  if (ranks != nullptr && ranks->is_int64()) place.ranks = ranks->get_int64();
  return place;
}

std::string pushed_params(const std::string& push_name, const KvPlace& place) {
  json::object params{{"do_remote_decode", false}, {"do_remote_prefill", true},
                      {"transfer_mode", "push"},   {"remote_request_id", push_name},
                      {"remote_host", place.host}, {"remote_port", place.port}};
  if (!place.engine.empty()) {
    params["remote_engine_id"] = place.engine;
    params["tp_size"] = place.ranks;
  }
  return json::serialize(params);
}

std::string body_for_decode(const std::string& body, const std::string& params) {
  auto request = parse_object(body);
  if (!request || params.empty()) return body;
  (*request)["kv_transfer_params"] = json::parse(params);
  return json::serialize(*request);
}

}  // namespace quire::proxy
