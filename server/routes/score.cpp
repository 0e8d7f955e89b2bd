// POST /score and /rerank under all their paths. A model that classifies rates pairs of texts; of a
// model of embeddings the score is the cosine of two vectors.

#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <numeric>

#include "server/http/error_reply.h"
#include "server/pooling/vectors.h"
#include "server/routes/routes.h"

namespace quire {

namespace {

const PoolingInfo& pooling_of(const AppState& app) {
  return app.engines.ready().engines.front().pooling;
}

// One text for each score on both sides, but that a single query is there once.
struct Pairs {
  std::span<const std::string> queries, documents;
  const std::string& query(std::size_t i) const { return queries[queries.size() == 1 ? 0 : i]; }
};

std::int64_t text_limit(const openapi::PoolingRequest& request, const AppState& app) {
  return request.truncate_prompt_tokens ? kNoLimit : app.engines.ready().max_model_len;
}

Result<std::vector<PooledPrompt>> pair_prompts(const Pairs& pairs,
                                               const openapi::PoolingRequest& request,
                                               const AppState& app) {
  std::vector<PooledPrompt> prompts;
  for (std::size_t i = 0; i < pairs.documents.size(); ++i) {
    auto pair = app.text.encode_pair(pairs.query(i), pairs.documents[i], text_limit(request, app));
    if (!pair) return pair.error();
    if (const auto ok = truncate(request, app, pair->ids); !ok) return ok.error();
    const auto length = static_cast<int>(pair->ids.size());
    prompts.push_back({std::move(pair->ids), std::min(pair->second, length)});
  }
  return prompts;
}

// The queries, then the documents.
Result<std::vector<PooledPrompt>> single_prompts(const Pairs& pairs,
                                                 const openapi::PoolingRequest& request,
                                                 const AppState& app) {
  std::vector<PooledPrompt> prompts;
  for (const auto texts : {pairs.queries, pairs.documents}) {
    for (const std::string& text : texts) {
      auto ids = app.text.encode(text, request.add_special_tokens, text_limit(request, app));
      if (!ids) return ids.error();
      if (ids->empty())
        return Error{ErrorCode::invalid_argument, "a text of no tokens has no score",
                     texts.data() == pairs.queries.data() ? "text_1" : "text_2"};
      if (const auto ok = truncate(request, app, *ids); !ok) return ok.error();
      prompts.push_back({std::move(*ids), 0});
    }
  }
  return prompts;
}

float cosine(std::vector<float> a, std::vector<float> b) {
  normalize(a);
  normalize(b);
  // Rounding must not lead beyond what a cosine can be.
  return std::clamp(std::inner_product(a.begin(), a.end(), b.begin(), 0.f), -1.f, 1.f);
}

std::vector<float> scores_of(const Vectors& vectors, const Pairs& pairs, bool embeds,
                             bool activates) {
  std::vector<float> scores;
  for (std::size_t i = 0; i < pairs.documents.size(); ++i) {
    if (embeds) {
      const std::size_t query = pairs.queries.size() == 1 ? 0 : i;
      scores.push_back(
          cosine(vectors.values[query], vectors.values[pairs.queries.size() + i]));
    } else {
      const float logit = vectors.values[i].front();
      scores.push_back(activates ? sigmoid(logit) : logit);
    }
  }
  return scores;
}

struct Scored {
  std::vector<float> scores;
  Vectors vectors;
};

// `body_size` says how long it takes to make tokens.
awaitable<Result<Scored>> score(Pairs pairs, std::size_t body_size,
                                const openapi::PoolingRequest& request, Exchange& exchange,
                                AppState& app) {
  const PoolingInfo& info = pooling_of(app);
  if (const auto ok = check_pooling(request, info.task, exchange, app); !ok) co_return ok.error();
  const bool embeds = info.task == PoolingTask::embed;
  if (!embeds && info.size != 1) {
    co_return Error{ErrorCode::invalid_argument,
                    "This model has " + std::to_string(info.size) +
                        " labels; a score needs a model that has one",
                    "model"};
  }
  Result<std::vector<PooledPrompt>> prompts = Error{};
  const auto work = [&] {
    prompts = embeds ? single_prompts(pairs, request, app) : pair_prompts(pairs, request, app);
  };
  if (body_size <= kLongText) {
    work();
  } else {
    co_await run_on(app.worker, work);
  }
  if (!prompts) co_return prompts.error();
  auto vectors = co_await run_prompts(std::move(*prompts), request, exchange, app);
  if (!vectors) co_return vectors.error();
  Scored scored{scores_of(*vectors, pairs, embeds, uses_activation(request, app)),
                std::move(*vectors)};
  co_return scored;
}

awaitable<void> reply_scores(const openapi::ScoreRequest& request, std::size_t body_size,
                             Exchange& exchange, AppState& app) {
  const Pairs pairs{request.queries, request.documents};
  const auto scored = co_await score(pairs, body_size, request, exchange, app);
  if (!scored) co_return co_await exchange.reply(error_reply(scored.error()));
  const auto head = pooling_reply(request, "score-", scored->vectors, exchange, app);
  co_await exchange.reply(json_reply(openapi::scores_json(head, scored->scores)));
}

// The best first; of equal ones the first in the request.
std::vector<openapi::RankedDocument> ranking(const openapi::RerankRequest& request,
                                             const std::vector<float>& scores) {
  std::vector<openapi::RankedDocument> ranked;
  for (std::size_t i = 0; i < scores.size(); ++i)
    ranked.push_back({i, request.documents[i], scores[i]});
  std::ranges::stable_sort(ranked, std::ranges::greater(), &openapi::RankedDocument::score);
  if (request.top_n > 0 && std::cmp_less(request.top_n, ranked.size()))
    ranked.resize(static_cast<std::size_t>(request.top_n));
  return ranked;
}

awaitable<void> reply_ranking(const openapi::RerankRequest& request, std::size_t body_size,
                              Exchange& exchange, AppState& app) {
  const Pairs pairs{std::span(&request.query, 1), request.documents};
  const auto scored = co_await score(pairs, body_size, request, exchange, app);
  if (!scored) co_return co_await exchange.reply(error_reply(scored.error()));
  const auto head = pooling_reply(request, "rerank-", scored->vectors, exchange, app);
  co_await exchange.reply(
      json_reply(openapi::ranking_json(head, ranking(request, scored->scores), request.return_documents)));
}

}  // namespace

awaitable<void> post_score(Exchange& exchange, AppState& app) {
  const std::size_t body_size = exchange.request().body.size();
  Result<openapi::ScoreRequest> request = Error{};
  co_await with_body(exchange, app,
                     [&](std::string_view body) { request = openapi::parse_score(body); });
  if (!request) co_return co_await exchange.reply(malformed_reply(request.error()));
  co_await first_of(reply_scores(*request, body_size, exchange, app), exchange.peer_closed());
}

awaitable<void> post_rerank(Exchange& exchange, AppState& app) {
  const std::size_t body_size = exchange.request().body.size();
  Result<openapi::RerankRequest> request = Error{};
  co_await with_body(exchange, app,
                     [&](std::string_view body) { request = openapi::parse_rerank(body); });
  if (!request) co_return co_await exchange.reply(malformed_reply(request.error()));
  co_await first_of(reply_ranking(*request, body_size, exchange, app), exchange.peer_closed());
}

}  // namespace quire
