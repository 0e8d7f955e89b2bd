#pragma once
// The handlers; router.cpp says under which paths.

#include <functional>
#include <string_view>

#include "server/app_state.h"
#include "server/http/exchange.h"

namespace quire {

awaitable<void> post_chat_completions(Exchange& exchange, AppState& app);
awaitable<void> post_completions(Exchange& exchange, AppState& app);
awaitable<void> post_messages(Exchange& exchange, AppState& app);
awaitable<void> post_input_tokens(Exchange& exchange, AppState& app);
awaitable<void> post_count_tokens(Exchange& exchange, AppState& app);
awaitable<void> post_responses(Exchange& exchange, AppState& app);
awaitable<void> get_response(Exchange& exchange, AppState& app);
awaitable<void> delete_response(Exchange& exchange, AppState& app);
awaitable<void> post_generate(Exchange& exchange, AppState& app);
awaitable<void> post_render_chat(Exchange& exchange, AppState& app);
awaitable<void> post_render_completion(Exchange& exchange, AppState& app);
awaitable<void> post_embeddings(Exchange& exchange, AppState& app);
awaitable<void> post_score(Exchange& exchange, AppState& app);
awaitable<void> post_rerank(Exchange& exchange, AppState& app);
awaitable<void> get_debug_requests(Exchange& exchange, AppState& app);
awaitable<void> get_debug_request(Exchange& exchange, AppState& app);
awaitable<void> get_debug_blocks(Exchange& exchange, AppState& app);
awaitable<void> post_tokenize(Exchange& exchange, AppState& app);
awaitable<void> post_detokenize(Exchange& exchange, AppState& app);
awaitable<void> get_tokenizer_info(Exchange& exchange, AppState& app);
awaitable<void> get_server_info(Exchange& exchange, AppState& app);
awaitable<void> get_openapi(Exchange& exchange, AppState& app);
awaitable<void> get_is_sleeping(Exchange& exchange, AppState& app);
awaitable<void> post_sleep(Exchange& exchange, AppState& app);
awaitable<void> post_wake_up(Exchange& exchange, AppState& app);
awaitable<void> post_reset_prefix_cache(Exchange& exchange, AppState& app);
awaitable<void> get_models(Exchange& exchange, AppState& app);
awaitable<void> get_model(Exchange& exchange, AppState& app);
awaitable<void> get_index(Exchange& exchange, AppState& app);
awaitable<void> get_health(Exchange& exchange, AppState& app);
awaitable<void> get_ready(Exchange& exchange, AppState& app);
awaitable<void> get_live(Exchange& exchange, AppState& app);
awaitable<void> get_version(Exchange& exchange, AppState& app);
awaitable<void> get_load(Exchange& exchange, AppState& app);
awaitable<void> get_metrics(Exchange& exchange, AppState& app);

// Hands the request's body to `parse`, a long one on a worker, and lets go of it.
awaitable<void> with_body(Exchange& exchange, AppState& app,
                          std::function<void(std::string_view body)> parse);

// Longer texts become tokens on the worker, so that probes and streams need not wait for them.
constexpr std::size_t kLongText = 16 * 1024;
// Far above any context: a text too long for the model may still be counted or truncated.
constexpr std::int64_t kNoLimit = std::int64_t{1} << 40;
std::int64_t prompt_limit(const openapi::GenerationRequest& request, const AppState& app);
// By each name that the model is served under.
std::vector<openapi::ModelCard> model_cards(const AppState& app);
// The name that replies carry: the one that was asked for, or the first.
std::string reply_model(const std::string& asked, const AppState& app);
// What made an answer: this version, with the model of this fingerprint. The engines are ready.
std::string system_fingerprint(const AppState& app);

}  // namespace quire
