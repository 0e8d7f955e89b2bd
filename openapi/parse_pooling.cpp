#include <fmt/format.h>

#include "openapi/json_reader.h"
#include "openapi/parse_generation.h"
#include "openapi/pooling.h"

namespace quire::openapi {

namespace {

constexpr std::size_t kMaxInputs = 2048;  // OpenAI's limit

bool check_text(JsonReader& reader, JsonElement element, PoolingRequest&) {
  return element.is_string() || reader.expected("a string", element);
}
// What other servers have, and what would change the answer.
bool refuse(JsonReader& reader, JsonElement, PoolingRequest&) {
  return reader.fail("is not supported by this server");
}

bool read_encoding(JsonReader& reader, JsonElement element, EmbeddingRequest& out) {
  std::string name;
  if (!read(reader, element, name)) return false;
  out.is_base64 = name == "base64";
  return out.is_base64 || name == "float" ||
         reader.fail(fmt::format("is \"{}\"; what works: float, base64", name.substr(0, 40)));
}

// The one that this server has anyway.
bool read_embed_dtype(JsonReader& reader, JsonElement element, EmbeddingRequest&) {
  std::string name;
  return read(reader, element, name) &&
         (name == "float32" || reader.fail("only float32 is supported"));
}
bool read_endianness(JsonReader& reader, JsonElement element, EmbeddingRequest&) {
  std::string name;
  return read(reader, element, name) &&
         (name == "native" || name == "little" || reader.fail("only little is supported"));
}

bool refuse_messages(JsonReader& reader, JsonElement, PoolingRequest&) {
  return reader.fail("is not supported here; render the chat and send it as input");
}

// What is not cut from its right is another text, and so is one with filling.
bool check_side(JsonReader& reader, JsonElement element, PoolingRequest&) {
  std::string side;
  return read(reader, element, side) && (side == "right" || reader.fail("only right is supported"));
}
bool check_padding(JsonReader& reader, JsonElement element, PoolingRequest&) {
  bool pads = true;
  std::string_view how;
  const bool is_none = (!element.get(pads) && !pads) || (!element.get(how) && how == "do_not_pad");
  return is_none || reader.fail("only false is supported: nothing is padded here");
}

bool check_truncation(JsonReader& reader, const PoolingRequest& out) {
  const auto asked = out.truncate_prompt_tokens;
  if (!asked || *asked == -1 || *asked >= 1) return true;
  return reader.in_member("truncate_prompt_tokens", [&] {
    return reader.fail(fmt::format("must be at least 1, or -1 for the model's length, got {}",
                                   *asked));
  });
}

bool read_ids(JsonReader& reader, JsonElement element, EmbeddingRequest& out) {
  Prompt& input = out.inputs.emplace_back();
  input.is_text = false;
  return read(reader, element, input.ids) &&
         (!input.ids.empty() || reader.fail("must not be empty"));
}

bool read_input_item(JsonReader& reader, JsonElement element, EmbeddingRequest& out) {
  if (element.is_array()) return read_ids(reader, element, out);
  if (element.is_string()) return read(reader, element, out.inputs.emplace_back().text);
  return reader.expected("a string or an array of token ids", element);
}

bool check_count(JsonReader& reader, std::size_t count) {
  if (count == 0) return reader.fail("must not be empty");
  return count <= kMaxInputs ||
         reader.fail(fmt::format("at most {} are taken, got {}", kMaxInputs, count));
}

// A string, token ids, or an array of either.
bool read_input(JsonReader& reader, JsonElement element, EmbeddingRequest& out) {
  simdjson::dom::array items;
  if (element.is_string()) return read_input_item(reader, element, out);
  if (element.get(items)) return reader.expected("a string or an array", element);
  if (items.size() > 0 && (*items.begin()).is_number()) return read_ids(reader, element, out);
  if (!check_count(reader, items.size())) return false;
  std::size_t i = 0;
  for (const JsonElement item : items) {
    if (!reader.in_item(i++, [&] { return read_input_item(reader, item, out); })) return false;
  }
  return true;
}

// A text, or an object that holds one, as rerank's clients send.
bool read_text(JsonReader& reader, JsonElement element, std::string& out) {
  simdjson::dom::object object;
  if (element.get(object)) return read(reader, element, out);
  JsonElement text;
  if (object["text"].get(text)) return reader.fail("must be a string or have a member text");
  return reader.in_member("text", [&] { return read(reader, text, out); });
}

bool read_texts(JsonReader& reader, JsonElement element, std::vector<std::string>& out) {
  simdjson::dom::array items;
  out.clear();
  if (element.get(items)) return read_text(reader, element, out.emplace_back());
  if (!check_count(reader, items.size())) return false;
  std::size_t i = 0;
  for (const JsonElement item : items) {
    if (!reader.in_item(i++, [&] { return read_text(reader, item, out.emplace_back()); }))
      return false;
  }
  return true;
}

bool read_queries(JsonReader& reader, JsonElement element, ScoreRequest& out) {
  return read_texts(reader, element, out.queries);
}
template <class T>
bool read_documents(JsonReader& reader, JsonElement element, T& out) {
  return read_texts(reader, element, out.documents);
}
bool read_query(JsonReader& reader, JsonElement element, RerankRequest& out) {
  return read_text(reader, element, out.query);
}

bool read_pooling_timeout(JsonReader& reader, JsonElement element, PoolingRequest& out) {
  return read_timeout(reader, element, out.timeout);
}

template <class T>
constexpr std::array kShared = {
    JsonMember<T>{"model", read_member<&PoolingRequest::model>},
    JsonMember<T>{"request_id", read_member<&PoolingRequest::request_id>},
    JsonMember<T>{"truncate_prompt_tokens", read_member<&PoolingRequest::truncate_prompt_tokens>},
    JsonMember<T>{"truncation_side", read_as<check_side>},
    JsonMember<T>{"padding", read_as<check_padding>},
    JsonMember<T>{"use_activation", read_member<&PoolingRequest::use_activation>},
    JsonMember<T>{"normalize", read_member<&PoolingRequest::use_activation>},
    JsonMember<T>{"activation", read_member<&PoolingRequest::use_activation>},
    JsonMember<T>{"add_special_tokens", read_member<&PoolingRequest::add_special_tokens>},
    JsonMember<T>{"priority", read_member<&PoolingRequest::priority>},
    JsonMember<T>{"timeout", read_as<read_pooling_timeout>},
    JsonMember<T>{"user", read_as<check_text>},
    JsonMember<T>{"chat_template", read_as<refuse>},
    JsonMember<T>{"chat_template_kwargs", read_as<refuse>},
    JsonMember<T>{"instruction", read_as<refuse>},
    JsonMember<T>{"mm_processor_kwargs", read_as<refuse>},
    JsonMember<T>{"max_tokens_per_query", read_as<refuse>},
    JsonMember<T>{"max_tokens_per_doc", read_as<refuse>},
    JsonMember<T>{"cache_salt", read_as<refuse>},
    JsonMember<T>{"messages", read_as<refuse_messages>},
};

constexpr std::array kEmbeddingOnly = {
    JsonMember<EmbeddingRequest>{"input", read_input},
    JsonMember<EmbeddingRequest>{"encoding_format", read_encoding},
    JsonMember<EmbeddingRequest>{"dimensions", read_member<&EmbeddingRequest::dimensions>},
    JsonMember<EmbeddingRequest>{"embed_dtype", read_embed_dtype},
    JsonMember<EmbeddingRequest>{"endianness", read_endianness},
};
constexpr auto kEmbedding = joined(kShared<EmbeddingRequest>, kEmbeddingOnly);

constexpr std::array kScoreOnly = {
    JsonMember<ScoreRequest>{"text_1", read_queries},
    JsonMember<ScoreRequest>{"text_2", read_documents<ScoreRequest>},
    JsonMember<ScoreRequest>{"data_1", read_queries},
    JsonMember<ScoreRequest>{"data_2", read_documents<ScoreRequest>},
    JsonMember<ScoreRequest>{"queries", read_queries},
    JsonMember<ScoreRequest>{"items", read_documents<ScoreRequest>},
    JsonMember<ScoreRequest>{"documents", read_documents<ScoreRequest>},
};
constexpr auto kScore = joined(kShared<ScoreRequest>, kScoreOnly);

constexpr std::array kRerankOnly = {
    JsonMember<RerankRequest>{"query", read_query},
    JsonMember<RerankRequest>{"documents", read_documents<RerankRequest>},
    JsonMember<RerankRequest>{"top_n", read_member<&RerankRequest::top_n>},
    JsonMember<RerankRequest>{"return_documents", read_member<&RerankRequest::return_documents>},
    JsonMember<RerankRequest>{"max_chunks_per_doc", read_as<refuse>},
    JsonMember<RerankRequest>{"rank_fields", read_as<refuse>},
};
constexpr auto kRerank = joined(kShared<RerankRequest>, kRerankOnly);

// Parsed by the table, then held against `check`.
template <class T, std::size_t kSize, class Check>
Result<T> parse_with(std::string_view body, const std::array<JsonMember<T>, kSize>& members,
                     Check check) {
  const auto object = parse_json_object(body);
  if (!object) return object.error();
  JsonReader reader;
  T request;
  if (!read_members<T>(reader, *object, members, request, &request.unknown_members) ||
      !check_truncation(reader, request) || !check(reader, request)) {
    return reader.take_error();
  }
  return request;
}

bool check_present(JsonReader& reader, std::string_view name, bool is_there) {
  return is_there || reader.in_member(name, [&] { return reader.fail("is missing or empty"); });
}

}  // namespace

Result<EmbeddingRequest> parse_embeddings(std::string_view body) {
  return parse_with<EmbeddingRequest>(body, kEmbedding, [](JsonReader& reader, auto& request) {
    const bool cuts = request.dimensions.has_value();
    return check_present(reader, "input", !request.inputs.empty()) &&
           (!cuts || *request.dimensions >= 1 || reader.in_member("dimensions", [&] {
             return reader.fail(fmt::format("must be at least 1, got {}", *request.dimensions));
           }));
  });
}

Result<ScoreRequest> parse_score(std::string_view body) {
  return parse_with<ScoreRequest>(body, kScore, [](JsonReader& reader, auto& request) {
    const std::size_t queries = request.queries.size(), documents = request.documents.size();
    return check_present(reader, "text_1", queries > 0) &&
           check_present(reader, "text_2", documents > 0) &&
           (queries == 1 || queries == documents || reader.in_member("text_1", [&] {
             return reader.fail(fmt::format(
                 "has {} texts, text_2 has {}; text_1 must have one, or as many", queries,
                 documents));
           }));
  });
}

Result<RerankRequest> parse_rerank(std::string_view body) {
  return parse_with<RerankRequest>(body, kRerank, [](JsonReader& reader, auto& request) {
    return check_present(reader, "query", !request.query.empty()) &&
           check_present(reader, "documents", !request.documents.empty()) &&
           (request.top_n >= 0 || reader.in_member("top_n", [&] {
             return reader.fail(fmt::format("must not be negative, got {}", request.top_n));
           }));
  });
}

}  // namespace quire::openapi
