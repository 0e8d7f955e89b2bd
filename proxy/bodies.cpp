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
  const json::value* host = kept.if_contains("remote_host");
  const json::value* port = kept.if_contains("remote_port");
  const bool is_ours = kept.contains("remote_num_tokens") && blocks != nullptr &&
                       blocks->is_array() && blocks->get_array().empty();
  if (!is_ours || host == nullptr || !host->is_string() || port == nullptr || !port->is_int64())
    return std::nullopt;
  return KvPlace{std::string(host->get_string()), port->get_int64()};
}

std::string pushed_params(const std::string& push_name, const KvPlace& place) {
  return json::serialize(json::object{{"do_remote_decode", false},
                                      {"do_remote_prefill", true},
                                      {"transfer_mode", "push"},
                                      {"remote_request_id", push_name},
                                      {"remote_host", place.host},
                                      {"remote_port", place.port}});
}

std::string body_for_decode(const std::string& body, const std::string& params) {
  auto request = parse_object(body);
  if (!request || params.empty()) return body;
  (*request)["kv_transfer_params"] = json::parse(params);
  return json::serialize(*request);
}

}  // namespace quire::proxy
