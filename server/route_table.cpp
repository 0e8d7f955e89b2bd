#include "server/route_table.h"

#include <fmt/format.h>

#include <array>

#include "server/http/error_reply.h"
#include "server/http/path_hint.h"
#include "server/page/page.h"
#include "server/routes/routes.h"

namespace quire {
namespace {

constexpr unsigned kGenerates = Route::engine | Route::json_body | Route::generates;
constexpr unsigned kPools = Route::engine | Route::json_body | Route::pools;
constexpr unsigned kProbe = Route::no_key | Route::uncounted;

constexpr std::array kRoutes = {
    Route{"/v1/chat/completions", Method::post, post_chat_completions, kGenerates},
    Route{"/v1/completions", Method::post, post_completions, kGenerates},
    Route{"/v1/chat/completions/render", Method::post, post_render_chat,
          Route::engine | Route::json_body},
    Route{"/v1/completions/render", Method::post, post_render_completion,
          Route::engine | Route::json_body},
    Route{"/inference/v1/generate", Method::post, post_generate, kGenerates},
    Route{"/v1/responses", Method::post, post_responses, kGenerates},
    Route{"/v1/responses/input_tokens", Method::post, post_input_tokens,
          Route::engine | Route::json_body},
    Route{"/v1/responses/*", Method::get, get_response},
    Route{"/v1/responses/*", Method::delete_, delete_response},
    Route{"/v1/messages", Method::post, post_messages, kGenerates},
    Route{"/v1/messages/count_tokens", Method::post, post_count_tokens,
          Route::engine | Route::json_body},
    Route{"/v1/embeddings", Method::post, post_embeddings, kPools},
    Route{"/score", Method::post, post_score, kPools},
    Route{"/v1/score", Method::post, post_score, kPools},
    Route{"/rerank", Method::post, post_rerank, kPools},
    Route{"/v1/rerank", Method::post, post_rerank, kPools},
    Route{"/v2/rerank", Method::post, post_rerank, kPools},
    Route{"/debug/requests", Method::get, get_debug_requests, Route::admin_key | Route::uncounted},
    Route{"/debug/requests/**", Method::get, get_debug_request,
          Route::admin_key | Route::uncounted},
    Route{"/debug/blocks", Method::get, get_debug_blocks,
          Route::engine | Route::admin_key | Route::uncounted},
    Route{"/v1/models", Method::get, get_models, Route::engine},
    Route{"/v1/models/**", Method::get, get_model, Route::engine},
    Route{"/tokenize", Method::post, post_tokenize, Route::engine | Route::json_body},
    Route{"/detokenize", Method::post, post_detokenize, Route::engine | Route::json_body},
    Route{"/", Method::get, get_index},
    Route{"/ui/*", Method::get, get_page_file, kProbe},
    Route{"/docs", Method::get, get_docs, kProbe},
    Route{"/openapi.json", Method::get, get_openapi, kProbe},
    Route{"/tokenizer_info", Method::get, get_tokenizer_info},
    Route{"/server_info", Method::get, get_server_info, Route::engine | Route::uncounted},
    Route{"/is_sleeping", Method::get, get_is_sleeping},
    Route{"/sleep", Method::post, post_sleep},
    Route{"/wake_up", Method::post, post_wake_up},
    Route{"/reset_prefix_cache", Method::post, post_reset_prefix_cache,
          Route::engine | Route::admin_key},
    Route{"/health", Method::get, get_health, kProbe},
    Route{"/health/ready", Method::get, get_ready, kProbe},
    Route{"/ready", Method::get, get_ready, kProbe},
    Route{"/readyz", Method::get, get_ready, kProbe},
    Route{"/health/live", Method::get, get_live, kProbe},
    Route{"/ping", Method::get, get_health, kProbe},
    Route{"/ping", Method::post, get_health, kProbe},
    Route{"/version", Method::get, get_version, kProbe},
    Route{"/load", Method::get, get_load, Route::uncounted},
    Route{"/metrics", Method::get, get_metrics, Route::metrics_key | Route::uncounted},
    Route{"/metrics/", Method::get, get_metrics, Route::metrics_key | Route::uncounted},
};

// GET / from a browser: the page asks for the key itself.
constexpr Route kPage{"/", Method::get, get_page, kProbe};

constexpr auto kPaths = [] {
  std::array<std::string_view, kRoutes.size()> paths;
  for (std::size_t i = 0; i < paths.size(); ++i) paths[i] = kRoutes[i].path;
  return paths;
}();

bool matches(const Route& route, std::string_view path) {
  if (!route.path.ends_with('*')) return route.path == path;
  const auto stem = route.path.substr(0, route.path.find('*'));
  if (path.size() <= stem.size() || !path.starts_with(stem)) return false;
  return route.path.ends_with("**") || path.find('/', stem.size()) == path.npos;
}

std::string_view name_of(Method method) {
  return method == Method::get ? "GET, HEAD" : method == Method::post ? "POST" : "DELETE";
}

Reply not_found(const HttpRequest& request) {
  constexpr std::size_t kMaxEcho = 200;
  const auto hint = path_hint(request.path, kPaths);
  return plain_error_reply(
      404,
      fmt::format("Not Found: {} {}. {}", request.method_name, request.path.substr(0, kMaxEcho),
                  hint ? "Did you mean " + *hint + "?" : "GET / lists what there is."));
}

}  // namespace

FoundRoute find_route(const HttpRequest& request) {
  const Method method = request.method == Method::head ? Method::get : request.method;
  FoundRoute found;
  for (const Route& route : kRoutes) {
    if (!matches(route, request.path)) continue;
    if (route.path == "/" && method == Method::get && wants_page(request))
      return {&kPage, true, {}};
    if (route.method == method) return {&route, true, {}};
    found.path_exists = true;
    found.allow.append(name_of(route.method)).append(", ");
  }
  found.allow += "OPTIONS";
  return found;
}

Reply no_route(const FoundRoute& found, const HttpRequest& request) {
  if (!found.path_exists) return not_found(request);
  if (request.method == Method::options) {
    return {.status = 204, .body = {}, .content_type = {}, .allow = found.allow};
  }
  Reply reply = plain_error_reply(
      405, fmt::format("Method Not Allowed: {} takes {}", request.path, found.allow));
  reply.allow = found.allow;
  return reply;
}

}  // namespace quire
