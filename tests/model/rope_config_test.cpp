// What a configuration has to say of scaled ropes.

#include <catch2/catch.hpp>

#include "model/config.h"

namespace quire {
namespace {

ModelConfig parse(const std::string& json) { return parse_model_config(json, "config.json"); }

std::string llama(const std::string& more) {
  return R"({"architectures":["LlamaForCausalLM"],"vocab_size":100,"hidden_size":64,)"
         R"("num_attention_heads":4,"num_hidden_layers":2,"intermediate_size":128,)" +
         more + "}";
}

TEST_CASE("a scaled rope is refused without what its kind needs, as transformers does",
          "[model][config]") {
  const auto with = [](const std::string& scaling) {
    return parse(llama(R"("max_position_embeddings":8192,"rope_scaling":)" + scaling)).rope;
  };
  const auto refused = [&](const std::string& scaling, const std::string& why) {
    INFO(scaling);
    CHECK_THROWS_WITH(with(scaling), Catch::Contains("rope_scaling." + why));
  };
  refused(R"({"type":"linear"})", "factor: is missing; rope_type linear needs it");
  refused(R"({"type":"linear","factor":null})", "factor");
  refused(R"({"type":"dynamic","factor":null})", "factor");
  refused(R"({"type":"yarn"})", "factor");
  refused(R"({"type":"yarn","original_max_position_embeddings":2048})", "factor");
  CHECK(with(R"({"type":"yarn","factor":null,"original_max_position_embeddings":2048})").factor == 4);
  refused(R"({"rope_type":"llama3","low_freq_factor":1,"high_freq_factor":4})", "factor");
  refused(R"({"rope_type":"llama3","factor":8,"high_freq_factor":4})", "low_freq_factor");
  refused(R"({"rope_type":"llama3","factor":8,"low_freq_factor":1})", "high_freq_factor");
  CHECK(with(R"({"rope_type":"llama3","factor":8,"low_freq_factor":1,"high_freq_factor":4})")
            .kind == RopeKind::llama3);
}

TEST_CASE("HunYuan's dynamic rope is refused by its own number", "[model][config]") {
  CHECK_THROWS_WITH(
      parse(llama(R"("rope_scaling":{"type":"dynamic","alpha":1000.0,"factor":1.0})")),
      Catch::Contains("rope_scaling.alpha: is not supported"));
}

TEST_CASE("the trained length beside a rope counts before the one in it", "[model][config]") {
  const auto original = [](const std::string& type, const std::string& beside = "") {
    return parse(llama(R"("max_position_embeddings":16384,)" + beside +
                       R"("rope_scaling":{"type":")" + type + R"(","factor":4,"short_factor":[1],"long_factor":[1],)"
                              R"("original_max_position_embeddings":2048})"))
        .rope.original_max_position_embeddings;
  };
  const std::string beside = R"("original_max_position_embeddings":4096,)";
  CHECK(original("longrope") == 2048);
  CHECK(original("longrope", beside) == 4096);
  CHECK(original("yarn", beside) == 4096);
  CHECK(original("linear", beside) == 2048);
}

TEST_CASE("two spellings of a rope's type must not contradict each other", "[model][config]") {
  const auto kind = [](const std::string& types) {
    return parse(llama(R"("rope_scaling":{"factor":2,"short_factor":[1],"long_factor":[1],)" +
                       types + "}"))
        .rope.kind;
  };
  CHECK(kind(R"("type":"linear","rope_type":"linear")") == RopeKind::linear);
  CHECK(kind(R"("type":"mrope","rope_type":"default")") == RopeKind::standard);
  CHECK(kind(R"("type":"su","rope_type":"longrope")") == RopeKind::longrope);
  CHECK_THROWS_WITH(kind(R"("type":"linear","rope_type":"yarn")"),
                    Catch::Contains(R"(rope_type: "yarn" contradicts type, "linear")"));
}

}  // namespace
}  // namespace quire
