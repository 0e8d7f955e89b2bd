#include "openapi/pooling.h"

#include <catch2/catch.hpp>

using namespace quire;
using namespace quire::openapi;

namespace {

template <class T>
std::string refusal(const Result<T>& parsed) {
  return parsed ? "taken" : parsed.error().detail;
}

}  // namespace

TEST_CASE("inputs are texts, token ids, or lists of either", "[openapi][pooling]") {
  const auto one = parse_embeddings(R"({"model":"m","input":"a","encoding_format":"base64","dimensions":8})");
  REQUIRE(one.has_value());
  CHECK(one->inputs.size() == 1);
  CHECK(one->inputs[0].text == "a");
  CHECK(one->is_base64);
  CHECK(one->dimensions == 8);
  CHECK(!one->use_activation);
  const auto ids = parse_embeddings(R"({"input":[1,2,3],"normalize":false,"user":"u","encoding_format":null})");
  REQUIRE(ids.has_value());
  CHECK(ids->inputs.size() == 1);
  CHECK(ids->inputs[0].ids == std::vector<TokenId>{1, 2, 3});
  CHECK(ids->use_activation == false);
  CHECK(parse_embeddings(R"({"input":[[1],[2,3]]})")->inputs.size() == 2);
  CHECK(parse_embeddings(R"({"input":["a",[2,3]]})")->inputs.size() == 2);
}

TEST_CASE("what is wrong with a pooling request is told by its member", "[openapi][pooling]") {
  for (const auto& [body, member] : {std::pair{R"({})", "input"},
                                     {R"({"input":[]})", "input"},
                                     {R"({"input":[[]]})", "input[0]"},
                                     {R"({"input":["a",true]})", "input[1]"},
                                     {R"({"input":{"text":"a"}})", "input"},
                                     {R"({"input":"a","encoding_format":"bytes"})", "encoding_format"},
                                     {R"({"input":"a","embed_dtype":"float16"})", "embed_dtype"},
                                     {R"({"input":"a","endianness":"big"})", "endianness"},
                                     {R"({"input":"a","dimensions":0})", "dimensions"},
                                     {R"({"input":"a","dimensions":"8"})", "dimensions"},
                                     {R"({"input":"a","truncate_prompt_tokens":-2})", "truncate_prompt_tokens"},
                                     {R"({"input":"a","truncation_side":"left"})", "truncation_side"},
                                     {R"({"input":"a","padding":"max_length"})", "padding"},
                                     {R"({"messages":[]})", "messages"}}) {
    CAPTURE(body);
    CHECK(refusal(parse_embeddings(body)).find(member) != std::string::npos);
  }
  for (const auto& [body, member] : {std::pair{R"({"text_2":"a"})", "text_1"},
                                     {R"({"text_1":"a","text_2":[]})", "text_2"},
                                     {R"({"text_1":["a","b"],"text_2":"a"})", "text_1"},
                                     {R"({"text_1":5,"text_2":"a"})", "text_1"}}) {
    CAPTURE(body);
    CHECK(refusal(parse_score(body)).find(member) != std::string::npos);
  }
  for (const auto& [body, member] : {std::pair{R"({"documents":["a"]})", "query"},
                                     {R"({"query":"a"})", "documents"},
                                     {R"({"query":"a","documents":[{"title":"b"}]})", "documents[0]"},
                                     {R"({"query":"a","documents":["b"],"top_n":-1})", "top_n"},
                                     {R"({"query":"a","documents":["b"],"return_documents":1})", "return_documents"},
                                     {R"({"query":"a","documents":["b"],"user":1})", "user"},
                                     {R"({"query":"a","documents":["b"],"max_tokens_per_doc":9})", "max_tokens_per_doc"},
                                     {R"({"query":"a","documents":["b"],"rank_fields":["text"]})", "rank_fields"}}) {
    CAPTURE(body);
    CHECK(refusal(parse_rerank(body)).find(member) != std::string::npos);
  }
}

TEST_CASE("pairs go by all their names", "[openapi][pooling]") {
  for (const char* body : {R"({"text_1":"q","text_2":["a","b"]})", R"({"data_1":["q"],"data_2":["a","b"]})",
                           R"({"queries":"q","documents":["a",{"text":"b"}]})"}) {
    const auto parsed = parse_score(body);
    REQUIRE(parsed.has_value());
    CHECK(parsed->queries == std::vector<std::string>{"q"});
    CHECK(parsed->documents == std::vector<std::string>{"a", "b"});
  }
}

TEST_CASE("replies of pooling models are as their clients read them", "[openapi][pooling]") {
  const PoolingReply reply{.id = "embd-1", .created = 5, .model = "m", .prompt_tokens = 7};
  const std::string floats = embeddings_json(reply, {{0.5f, -1.f}}, false);
  CHECK(floats.find(R"("embedding":[0.5,-1.0])") != std::string::npos);
  CHECK(floats.find(R"("prompt_tokens":7,"total_tokens":7)") != std::string::npos);
  // 0.5 and −1 as little-endian float32: 0000003f 000080bf.
  CHECK(embeddings_json(reply, {{0.5f, -1.f}}, true).find(R"("embedding":"AAAAPwAAgL8=")") != std::string::npos);
  CHECK(embeddings_json(reply, {{0.5f}}, true).find(R"("AAAAPw==")") != std::string::npos);
  CHECK(embeddings_json(reply, {{0.5f, -1.f, 0.f}}, true).find(R"("AAAAPwAAgL8AAAAA")") != std::string::npos);
  CHECK(scores_json(reply, {0.25f}).find(R"({"index":0,"object":"score","score":0.25})") != std::string::npos);
  CHECK(ranking_json(reply, {{2, "c", 0.75f}}, true).find(R"({"index":2,"document":{"text":"c"},"relevance_score":0.75})") !=
        std::string::npos);
  CHECK(ranking_json(reply, {{2, "c", 0.75f}}, false).find(R"({"index":2,"relevance_score":0.75})") != std::string::npos);
}
