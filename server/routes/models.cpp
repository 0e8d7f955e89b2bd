// GET /v1/models, /v1/models/{id}

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <utility>

#include "openapi/dto_json.h"
#include "server/generation/push_name.h"
#include "server/http/error_reply.h"
#include "server/model_name.h"
#include "server/routes/routes.h"

namespace quire {

namespace {

// Parsing a longer one would hold up the probes and streams of its I/O thread.
constexpr std::size_t kLongBody = 256 * 1024;
constexpr std::string_view kModelPath = "/v1/models/";

openapi::EngineCard card_of(const Ready& ready) {
  openapi::EngineCard card{.engine = static_cast<int>(ready.engine.value),
                           .device = ready.device,
                           .dtype = ready.dtype,
                           .kv_cache_dtype = ready.kv_cache_dtype,
                           .max_model_len = ready.max_model_len,
                           .block_size = ready.block_size,
                           .num_gpu_blocks = ready.num_gpu_blocks,
                           .kv_cache_size_tokens = ready.kv_cache_size_tokens};
  for (const KvGroupInfo& group : ready.groups) {
    card.kv_groups.push_back(
        {group.kind, group.block_size, group.kernel_block_size, group.page_bytes, group.layers});
  }
  for (const MemoryUseInfo& use : ready.memory) {
    card.memory.push_back({use.purpose, use.planned_bytes, use.allocated_bytes, use.pinned_bytes});
  }
  return card;
}

openapi::ModelCard card_of(const std::string& name, const AppState& app) {
  const ReadyInfo& ready = app.engines.ready();
  openapi::ModelCard card{name, app.started, app.config.model_root, ready.max_model_len, {}};
  for (const Ready& engine : ready.engines) card.engines.push_back(card_of(engine));
  return card;
}

}  // namespace

std::int64_t prompt_limit(const openapi::GenerationRequest& request, const AppState& app) {
  return request.truncate_prompt_tokens ? kNoLimit : app.engines.ready().max_model_len;
}

std::vector<openapi::ModelCard> model_cards(const AppState& app) {
  std::vector<openapi::ModelCard> cards;
  for (const auto& name : app.config.served_model_names) cards.push_back(card_of(name, app));
  return cards;
}

std::string reply_model(const std::string& asked, const AppState& app) {
  return asked.empty() ? app.config.served_model_names.front() : asked;
}

namespace {

std::string push_name(const Exchange& exchange, const KvTransferConfig& transfer) {
  const HttpRequest& request = exchange.request();
  if (transfer.uses_mooncake()) return mooncake_name_of(request.body);
  if (!transfer.pushes_nixl()) return push_name_of(request.body);
  return nixl_push_name_of(request.path, request.request_id.empty() ? "" : exchange.id(),
                           request.body);
}

}  // namespace

awaitable<void> with_body(Exchange& exchange, AppState& app,
                          std::function<void(std::string_view body)> parse) {
  const std::string& body = exchange.request().body;
  const KvTransferConfig& transfer = app.engine_config.kv_transfer;
  bool is_known = false;
  const auto know_transfer = [&] {
    if (std::exchange(is_known, true)) return;
    if (transfer.prefills()) exchange.set_push_name(push_name(exchange, transfer));
    if (transfer.decodes()) exchange.set_fetch_params(fetch_params_of(body));
  };
  if (body.size() <= kLongBody) {
    know_transfer();
    parse(body);
  } else {
    std::function<void()> work = [&] {
      know_transfer();
      parse(body);
      openapi::shrink_parser();
    };
    try {
      co_await run_on(app.worker, std::move(work));
    } catch (...) {
      know_transfer();  // it was cancelled before its turn
      throw;
    }
  }
  exchange.drop_body();
}

std::string system_fingerprint(const AppState& app) {
  constexpr std::size_t kFingerprintBytes = 8;
  const std::string& model = app.engines.ready().engines.front().model_fingerprint;
  return fmt::format("quire-{}-{}", quire_version(), model.substr(0, kFingerprintBytes));
}

awaitable<void> get_models(Exchange& exchange, AppState& app) {
  co_await exchange.reply(json_reply(openapi::to_json(model_cards(app))));
}

awaitable<void> get_model(Exchange& exchange, AppState& app) {
  const std::string name = exchange.request().path.substr(kModelPath.size());
  if (!is_model(name, app.config)) {
    const Error error{ErrorCode::not_found,
                      "The model `" + name.substr(0, 200) + "` does not exist.", "model"};
    co_return co_await exchange.reply(error_reply(error));
  }
  co_await exchange.reply(json_reply(openapi::to_json(card_of(name, app))));
}

}  // namespace quire
