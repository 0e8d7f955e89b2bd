#include "model/config.h"

#include <catch2/catch.hpp>

#include "base/error.h"

namespace quire {
namespace {

ModelConfig parse(const std::string& json) { return parse_model_config(json, "config.json"); }

// The smallest Llama, with `more` fields.
std::string llama(const std::string& more = "", const char* architecture = "LlamaForCausalLM") {
  return std::string(R"({"architectures":[")") + architecture +
         R"("],"vocab_size":100,"hidden_size":64,"num_attention_heads":4,"num_hidden_layers":2,)"
         R"("intermediate_size":128)" +
         (more.empty() ? "" : "," + more) + "}";
}

TEST_CASE("what config.json leaves out has the family's defaults", "[model][config]") {
  const ModelConfig c = parse(llama());
  CHECK(c.num_kv_heads == 4);
  CHECK(c.head_dim == 16);
  CHECK(c.rope.theta == 10000.0);
  CHECK(c.dtype == DType::bf16);
  CHECK_FALSE(c.tie_word_embeddings);
  CHECK(c.layer_types == std::vector(2, LayerType::full_attention));
}

TEST_CASE("older and newer spellings say the same", "[model][config]") {
  const ModelConfig older = parse(llama(
      R"("torch_dtype":"float16","rope_theta":5e5,"rope_scaling":{"type":"linear","factor":2})"));
  const ModelConfig newer = parse(llama(
      R"("dtype":"float16","rope_parameters":{"rope_type":"linear","rope_theta":5e5,"factor":2.0})"));
  for (const ModelConfig& c : {older, newer}) {
    CHECK(c.dtype == DType::f16);
    CHECK(c.rope.kind == RopeKind::linear);
    CHECK(c.rope.theta == 5e5);
    CHECK(c.rope.factor == 2.0);
  }
}

TEST_CASE("a text part inside a vision model is what counts", "[model][config]") {
  const ModelConfig c = parse(
      R"({"architectures":["Gemma3ForConditionalGeneration"],"vision_config":{"hidden_size":8},)"
      R"("text_config":{"vocab_size":100,"hidden_size":64,"num_attention_heads":4,"head_dim":32,)"
      R"("num_hidden_layers":12,"intermediate_size":128,"sliding_window":24,)"
      R"("rope_local_base_freq":10000.0,"rope_theta":1e6}})");
  CHECK(c.head_dim == 32);
  CHECK(c.tie_word_embeddings);
  CHECK(c.layer_types[5] == LayerType::full_attention);
  CHECK(c.layer_types[6] == LayerType::sliding_attention);
  CHECK(c.rope.theta == 1e6);
  REQUIRE(c.rope_local.has_value());
  CHECK(c.rope_local->theta == 1e4);
}

TEST_CASE("a vision checkpoint may leave out its class's defaults", "[model][config]") {
  const ModelConfig c =
      parse(R"({"architectures":["Gemma3ForConditionalGeneration"],"eos_token_id":[1,106],)"
            R"("text_config":{"hidden_size":2560,"intermediate_size":10240,"num_hidden_layers":34,)"
            R"("rope_scaling":{"factor":8.0,"rope_type":"linear"},"sliding_window":1024}})");
  CHECK(c.vocab_size == 262208);
  CHECK(c.num_heads == 8);
  CHECK(c.num_kv_heads == 4);
  CHECK(c.head_dim == 256);
  CHECK(c.rope.theta == 1e6);
  CHECK(c.rope_local.value().theta == 1e4);
  CHECK(c.eos_token_ids == std::vector<std::int32_t>{1, 106});
}

TEST_CASE("a rope per layer type is two ropes", "[model][config]") {
  const ModelConfig c =
      parse(llama(R"("sliding_window":8,"rope_parameters":{"full_attention":{"rope_type":"linear",)"
                  R"("rope_theta":1e6,"factor":8},"sliding_attention":{"rope_type":"default",)"
                  R"("rope_theta":1e4}})",
                  "Gemma3ForCausalLM"));
  CHECK(c.rope.kind == RopeKind::linear);
  CHECK(c.rope.factor == 8);
  REQUIRE(c.rope_local.has_value());
  CHECK(c.rope_local->theta == 1e4);
}

TEST_CASE("scaled ropes reach the original length times the factor", "[model][config]") {
  const auto reach = [](const std::string& scaling, const char* architecture = "LlamaForCausalLM") {
    const ModelConfig c = parse(
        llama(R"("max_position_embeddings":8192,"sliding_window":64,"rope_scaling":)" + scaling,
              architecture));
    CHECK(c.max_position_embeddings == 8192);
    return c.longest_context;
  };
  CHECK(reach("null") == 8192);
  CHECK(reach(R"({"type":"linear","factor":4})") == 32768);
  CHECK(reach(R"({"type":"dynamic","factor":2.5})") == 20480);
  CHECK(reach(R"({"type":"yarn","factor":4,"original_max_position_embeddings":8192})") == 32768);
  // What the file publishes is believed where that is more.
  CHECK(reach(R"({"type":"yarn","factor":4,"original_max_position_embeddings":1024})") == 8192);
  CHECK(reach(R"({"type":"llama3","factor":8,"original_max_position_embeddings":8192})") == 8192);
  CHECK(reach(R"({"type":"linear","factor":8})", "Gemma3ForCausalLM") == 8192);
  CHECK(reach(R"({"type":"linear","factor":1e300})") == 1 << 28);
}

TEST_CASE("windows apply to the layers that the family says", "[model][config]") {
  using enum LayerType;
  using Types = std::vector<LayerType>;
  CHECK(parse(llama(R"("sliding_window":8)", "MistralForCausalLM")).layer_types ==
        Types{sliding_attention, sliding_attention});
  CHECK(parse(llama(R"("sliding_window":8,"use_sliding_window":false,"max_window_layers":0)",
                    "Qwen2ForCausalLM"))
            .layer_types == Types{full_attention, full_attention});
  CHECK(parse(llama(R"("sliding_window":8,"use_sliding_window":true,"max_window_layers":1)",
                    "Qwen2ForCausalLM"))
            .layer_types == Types{full_attention, sliding_attention});
  CHECK(parse(llama(R"("sliding_window":8)", "Gemma2ForCausalLM")).layer_types ==
        Types{sliding_attention, full_attention});
}

TEST_CASE("numbers that only Python writes are read", "[model][config]") {
  const ModelConfig c =
      parse(R"({"architectures":["NemotronHForCausalLM"],"vocab_size":100,"hidden_size":64,)"
            R"("num_attention_heads":4,"intermediate_size":128,"hybrid_override_pattern":"M-*",)"
            R"("mamba_num_heads":8,"mamba_head_dim":16,"ssm_state_size":16,"n_groups":2,)"
            R"("time_step_limit":[0.0, Infinity],"note":"Infinity \" NaN"})");
  CHECK(c.num_layers == 3);
  CHECK(c.mamba2.time_step_max == std::numeric_limits<double>::infinity());
}

TEST_CASE("a value that no field needs may be anything", "[model][config]") {
  CHECK(parse(llama(R"("model_max_length":1000000000000000019884624838656,"x":[NaN,-Infinity],)"
                    R"("y":1e999,"vocab_size":7,"z":"\ud800")"))
            .vocab_size == 7);  // of two members with one name the last counts, as in Python
  const GenerationConfig g = parse_generation_config(
      R"({"max_length":1000000000000000019884624838656,"eos_token_id":2,"top_k":50.0})", "g.json");
  CHECK(g.eos_token_ids == std::vector<std::int32_t>{2});
  CHECK(g.top_k == 50);
}

TEST_CASE("bad fields are refused by name", "[model][config]") {
  struct Case {
    std::string json;
    const char* message;
  };
  const auto c = GENERATE(values<Case>({
      {"", "not JSON"},
      {"[]", "must be a JSON object"},
      {"{}", "architectures: is missing"},
      {R"({"architectures":[]})", "architectures: is missing"},
      {R"({"architectures":["T5Model"]})", "architectures: \"T5Model\" is not supported"},
      {R"({"architectures":["LlamaForCausalLM"]})", "vocab_size: is missing"},
      {R"({"architectures":["Qwen3_5ForConditionalGeneration"],"text_config":{}})",
       "text_config.vocab_size"},
      {llama(R"("num_key_value_heads":3)"), "num_key_value_heads: must divide"},
      {llama(R"("head_dim":0)"), "head_dim: must be an integer from 1"},
      {llama(R"("head_dim":1e99)"), "head_dim: must be an integer"},
      {llama(R"("head_dim":"16")"), "head_dim: must be an integer"},
      {llama(R"("dtype":"int3")"), "dtype: \"int3\""},
      {llama(R"("hidden_act":"tanh")"), "hidden_act: \"tanh\""},
      {llama(R"("rope_theta":-1)"), "rope_theta: must be above 0"},
      {llama(R"("rope_scaling":{"type":"spiral"})"), "rope_type: \"spiral\""},
      {llama(R"("rope_scaling":{"rope_type":"linear","factor":0})"), "factor: must be above 0"},
      {llama(R"("rope_scaling":{"rope_type":"longrope","short_factor":[1],"long_factor":[]})"),
       "longrope"},
      {llama(R"("tie_word_embeddings":"yes")"), "tie_word_embeddings: must be true or false"},
      {llama(R"("layer_types":["full_attention"])"), "layer_types: has 1 entries for 2 layers"},
      {llama(R"("layer_types":["full_attention","warp"])"), "layer_types: \"warp\""},
      {llama(R"("eos_token_id":[1,-2])"), "eos_token_id"},
      {llama("", "MixtralForCausalLM"), "num_experts: is missing"},
      {llama(R"("num_local_experts":4,"num_experts_per_tok":5)", "MixtralForCausalLM"),
       "num_experts_per_tok: must be an integer from 1 to 4"},
      {llama("", "DeepseekV3ForCausalLM"), "kv_lora_rank: is missing"},
      {llama("", "GptOssForCausalLM"), "sliding_window: is missing"},
  }));
  INFO(c.json);
  CHECK_THROWS_WITH(parse(c.json),
                    Catch::Contains(c.message) && Catch::StartsWith("config.json: "));
}

TEST_CASE("a scheme of the KV cache is read, and refused where nothing here stores so",
          "[model][config]") {
  const auto scheme = [](const std::string& fields) {
    return parse(llama(R"("quantization_config":{"quant_method":"compressed-tensors",)"
                       R"("config_groups":{},"kv_cache_scheme":)" +
                       fields + "}"))
        .quant;
  };
  const QuantConfig plain = scheme("null");
  CHECK(plain.method.empty());  // no weights are packed
  CHECK_FALSE(plain.kv_cache_dtype);
  CHECK(scheme(R"({"type":"float","num_bits":8})").kv_cache_dtype == DType::fp8_e4m3);
  for (const std::string fields :
       {R"({"type":"int","num_bits":8})", R"({"type":"float","num_bits":4})",
        R"({"type":"float","num_bits":8,"strategy":"attn_head"})",
        R"({"type":"float","num_bits":8,"strategy":"tensor","dynamic":true})",
        R"({"type":"float","num_bits":8,"symmetric":false})"}) {
    INFO(fields);
    CHECK_THROWS_WITH(scheme(fields), Catch::Contains("quantization_config.kv_cache_scheme"));
  }
}

TEST_CASE("generation_config.json suggests sampling", "[model][config]") {
  const GenerationConfig g = parse_generation_config(
      R"({"eos_token_id":[2,3],"temperature":0.6,"top_k":20,"top_p":0.95})", "g.json");
  CHECK(g.eos_token_ids == std::vector<std::int32_t>{2, 3});
  CHECK(g.temperature == 0.6);
  CHECK(g.top_k == 20);
  CHECK_FALSE(g.min_p.has_value());
  CHECK(parse_generation_config(R"({"eos_token_id":7})", "g.json").eos_token_ids.size() == 1);
  CHECK_THROWS_WITH(parse_generation_config(R"({"temperature":-5})", "g.json"),
                    "g.json: temperature must be from 0 to 100");
  CHECK_THROWS_WITH(parse_generation_config(R"({"top_p":"x"})", "g.json"),
                    Catch::Contains("g.json: top_p: must be a number"));
}

TEST_CASE("generation_config.json limits answers", "[model][config]") {
  const auto limit = [](const char* json) {
    return parse_generation_config(json, "generation_config.json").max_new_tokens;
  };
  CHECK(limit(R"({"max_new_tokens": 3})") == 3);
  CHECK_FALSE(limit("{}"));
  CHECK_THROWS(limit(R"({"max_new_tokens": 0})"));
}

}  // namespace
}  // namespace quire
