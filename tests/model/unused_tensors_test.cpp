#include "model/unused_tensors.h"

#include <catch2/catch.hpp>

#include <fstream>
#include <map>

#include "base/error.h"
#include "tests/support/temp_path.h"

namespace quire {
namespace {

// What is said of a checkpoint of two layers that has tensors of one float beside those that the
// model reads.
std::string left_of(const std::map<std::string, float>& others, const std::string& more = "") {
  const auto folder = temp_path("quire_unused_tensors_test");
  std::filesystem::create_directories(folder);
  std::map<std::string, float> all = others;
  all.emplace("model.layers.1.self_attn.q_proj.weight", 1.f);
  std::string header;
  std::size_t at = 0;
  for (const auto& [name, value] : all) {
    header += (at == 0 ? "{\"" : ",\"") + name +
              R"(":{"dtype":"F32","shape":[1],"data_offsets":[)" + std::to_string(at) + "," +
              std::to_string(at + sizeof(float)) + "]}";
    at += sizeof(float);
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = header.size();
  {
    std::ofstream out(folder / "model.safetensors", std::ios::binary);
    out.write(reinterpret_cast<const char*>(&length), sizeof(length));
    out << header;
    for (const auto& [name, value] : all)
      out.write(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  const ModelConfig config = parse_model_config(
      R"({"architectures":["LlamaForCausalLM"],"vocab_size":100,"hidden_size":64,)"
      R"("num_attention_heads":4,"num_hidden_layers":2,"intermediate_size":128)" +
          more + "}",
      "config.json");
  const Checkpoint checkpoint(folder);
  CHECK(checkpoint.find("model.layers.1.self_attn.q_proj.weight") != nullptr);
  return check_unused(checkpoint, config);
}

TEST_CASE("tensors that nothing reads are told by number and first names", "[model][unused]") {
  CHECK(left_of({}).empty());
  CHECK(left_of({{"model.extra.weight", 1.f}}) ==
        "the checkpoint has 1 tensor that the model does not read: model.extra.weight");
  CHECK(left_of({{"a", 1.f}, {"b", 1.f}, {"c", 1.f}, {"d", 1.f}}) ==
        "the checkpoint has 4 tensors that the model does not read: a, b, c, …");
  CHECK(left_of({{"model.layers.0.self_attn.q_proj.bias", 1.f}}).ends_with("q_proj.bias"));
}

TEST_CASE("tensors that change nothing are not told", "[model][unused]") {
  CHECK(left_of({{"model.layers.0.self_attn.rotary_emb.inv_freq", 1.f},
                 {"model.layers.0.self_attn.k_scale", 1.f},
                 {"model.layers.0.self_attn.q_proj.bias", 0.f},  // as GPTQ publishes it
                 {"vision_tower.encoder.layers.26.mlp.fc1.weight", 1.f},
                 {"mtp.layers.0.self_attn.q_proj.weight", 1.f},
                 {"model.layers.2.eh_proj.weight", 1.f},
                 {"model.layers.2.self_attn.q_proj.weight", 1.f}})
            .empty());
  CHECK(left_of({{"lm_head.weight", 1.f}}, R"(,"tie_word_embeddings":true)").empty());
}

TEST_CASE("a head that is not read is told of where it is not the embedding", "[model][unused]") {
  const auto tied = [](float head) {
    return left_of({{"lm_head.weight", head}, {"model.embed_tokens.weight", 1.f}},
                   R"(,"tie_word_embeddings":true)");
  };
  CHECK(tied(2.f).ends_with("not the embedding's copy"));
  CHECK(tied(1.f).find("copy") == std::string::npos);
}

TEST_CASE("tensors of another model than config.json's are refused", "[model][unused]") {
  CHECK_THROWS_WITH(left_of({{"model.layers.1.self_attn.sinks", 1.f}}),
                    Catch::Contains("layers.1.self_attn.sinks\" is a weight"));
  CHECK_THROWS_WITH(left_of({{"model.layers.2.mlp.up_proj.weight", 1.f}}),
                    Catch::Contains("is of layer 2, and num_hidden_layers of config.json is 2"));
  CHECK_THROWS_WITH(left_of({{"model.layers.0.self_attn.q_norm.weight", 1.f}}),
                    Catch::Contains("q_norm.weight\" is a weight that layers"));
  CHECK_THROWS_WITH(left_of({{"model.layers.0.self_attn.q_proj.lora_A.weight", 1.f}}),
                    Catch::Contains("merge it"));
}

}  // namespace
}  // namespace quire
