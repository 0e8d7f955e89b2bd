#pragma once
// What pooling models answer: embeddings (OpenAI's), scores and rankings (vLLM's, Jina's and
// Cohere's), as plain structs.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "openapi/dto.h"

namespace quire::openapi {

// What all of them have.
struct PoolingRequest {
  std::string model{};
  std::optional<std::string> request_id{};
  std::optional<std::int64_t> truncate_prompt_tokens{};  // −1: to the model's length
  std::optional<bool> use_activation{};
  bool add_special_tokens = true;
  std::int64_t priority = 0;
  std::optional<double> timeout{};  // seconds from the request's arrival
  std::vector<std::string> unknown_members{};
};

struct EmbeddingRequest : PoolingRequest {
  std::vector<Prompt> inputs{};
  bool is_base64 = false;
  std::optional<std::int64_t> dimensions{};
};

// Pairs; one query may be for all documents.
struct ScoreRequest : PoolingRequest {
  std::vector<std::string> queries{};
  std::vector<std::string> documents{};
};

struct RerankRequest : PoolingRequest {
  std::string query{};
  std::vector<std::string> documents{};
  std::int64_t top_n = 0;  // 0: all
  bool return_documents = true;
};

Result<EmbeddingRequest> parse_embeddings(std::string_view body);
Result<ScoreRequest> parse_score(std::string_view body);
Result<RerankRequest> parse_rerank(std::string_view body);

struct PoolingReply {
  std::string id{};
  std::int64_t created = 0;
  std::string model{};
  std::int64_t prompt_tokens = 0;
};

std::string embeddings_json(const PoolingReply& reply,
                            const std::vector<std::vector<float>>& vectors, bool is_base64);
std::string scores_json(const PoolingReply& reply, const std::vector<float>& scores);

struct RankedDocument {
  std::size_t index = 0;  // in the request
  std::string text{};
  float score = 0;
};
std::string ranking_json(const PoolingReply& reply, const std::vector<RankedDocument>& ranking,
                         bool with_documents);

}  // namespace quire::openapi
