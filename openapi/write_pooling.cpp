#include <algorithm>
#include <bit>

#include "openapi/json_writer.h"
#include "openapi/pooling.h"

namespace quire::openapi {

namespace {

constexpr std::string_view kDigits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

// Of the numbers' bytes, the least first.
std::string base64_of(const std::vector<float>& numbers) {
  std::string bytes;
  bytes.reserve(4 * numbers.size());
  for (const float number : numbers) {
    const auto bits = std::bit_cast<std::uint32_t>(number);
    for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<char>(bits >> (8 * i)));
  }
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t group = 0;
    const std::size_t count = std::min<std::size_t>(3, bytes.size() - i);
    for (std::size_t j = 0; j < 3; ++j)
      group = group << 8 | (j < count ? static_cast<unsigned char>(bytes[i + j]) : 0u);
    for (std::size_t j = 0; j < 4; ++j)
      text.push_back(j <= count ? kDigits[group >> (18 - 6 * j) & 63] : '=');
  }
  return text;
}

void write_head(JsonWriter& json, const PoolingReply& reply) {
  json.key("id").string(reply.id).key("object").string("list");
  json.key("created").integer(reply.created).key("model").string(reply.model);
}

void write_usage(JsonWriter& json, const PoolingReply& reply) {
  json.key("usage").begin_object().key("prompt_tokens").integer(reply.prompt_tokens);
  json.key("total_tokens").integer(reply.prompt_tokens).key("completion_tokens").integer(0);
  json.key("prompt_tokens_details").null().end_object();
}

}  // namespace

std::string embeddings_json(const PoolingReply& reply,
                            const std::vector<std::vector<float>>& vectors, bool is_base64) {
  std::string body;
  JsonWriter json(body);
  json.begin_object();
  write_head(json, reply);
  json.key("data").begin_array();
  for (std::size_t i = 0; i < vectors.size(); ++i) {
    json.begin_object().key("index").integer(static_cast<std::int64_t>(i));
    json.key("object").string("embedding").key("embedding");
    if (is_base64) {
      json.string(base64_of(vectors[i]));
    } else {
      json.begin_array();
      for (const float number : vectors[i]) json.number(number);
      json.end_array();
    }
    json.end_object();
  }
  json.end_array();
  write_usage(json, reply);
  json.end_object();
  return body;
}

std::string scores_json(const PoolingReply& reply, const std::vector<float>& scores) {
  std::string body;
  JsonWriter json(body);
  json.begin_object();
  write_head(json, reply);
  json.key("data").begin_array();
  for (std::size_t i = 0; i < scores.size(); ++i) {
    json.begin_object().key("index").integer(static_cast<std::int64_t>(i));
    json.key("object").string("score").key("score").number(scores[i]).end_object();
  }
  json.end_array();
  write_usage(json, reply);
  json.end_object();
  return body;
}

std::string ranking_json(const PoolingReply& reply, const std::vector<RankedDocument>& ranking,
                         bool with_documents) {
  std::string body;
  JsonWriter json(body);
  json.begin_object().key("id").string(reply.id).key("model").string(reply.model);
  json.key("usage").begin_object().key("prompt_tokens").integer(reply.prompt_tokens);
  json.key("total_tokens").integer(reply.prompt_tokens).end_object();
  json.key("results").begin_array();
  for (const RankedDocument& one : ranking) {
    json.begin_object().key("index").integer(static_cast<std::int64_t>(one.index));
    if (with_documents)
      json.key("document").begin_object().key("text").string(one.text).end_object();
    json.key("relevance_score").number(one.score).end_object();
  }
  json.end_array().end_object();
  return body;
}

}  // namespace quire::openapi
