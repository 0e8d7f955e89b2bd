#include <catch2/catch.hpp>

#include <fstream>

#include "base/error.h"
#include "tests/model/llama_json.h"
#include "tests/support/temp_path.h"

namespace quire::test {
namespace {

TEST_CASE("what config.json leaves out has the family's defaults", "[model][config]") {
  const ModelConfig c = parse(llama());
  CHECK(c.num_kv_heads == 4);
  CHECK(c.head_dim == 16);
  CHECK(c.rope.theta == 10000.0);
  CHECK(c.dtype == DType::bf16);
  CHECK_FALSE(c.tie_word_embeddings);
  CHECK(c.layer_types == std::vector(2, LayerType::full_attention));
}

TEST_CASE("a class's own defaults stand for what its config.json leaves out", "[model][config]") {
  const std::string heads = R"("num_key_value_heads":4)";
  const ModelConfig gemma2 = parse(llama(heads, "Gemma2ForCausalLM"));
  CHECK(gemma2.activation == Activation::gelu_tanh);
  CHECK(gemma2.attention_soft_cap == 50);
  CHECK(gemma2.logits_soft_cap == 30);
  CHECK(gemma2.head_dim == 256);
  CHECK(parse(llama(heads + R"(,"attn_logit_softcapping":null)", "Gemma2ForCausalLM"))
            .attention_soft_cap == 0);  // null says that there is none
  // As other Gemmas spell it, and none of them means.
  CHECK(parse(llama(heads + R"(,"hidden_act":"gelu")", "Gemma3ForCausalLM")).activation ==
        Activation::gelu_tanh);
  const ModelConfig mixtral = parse(llama(heads, "MixtralForCausalLM"));
  CHECK(mixtral.rope.theta == 1e6);
  CHECK(mixtral.rms_norm_eps == 1e-5);
  CHECK(mixtral.moe.num_experts == 8);
  CHECK(mixtral.moe.num_experts_per_tok == 2);
  // A class's number under another class's name.
  CHECK(parse(llama(heads + R"(,"num_local_experts":8)", "Qwen3MoeForCausalLM")).moe.num_experts ==
        8);
  const ModelConfig oss = parse(llama(heads, "GptOssForCausalLM"));
  CHECK(oss.rope.theta == 150000);
  CHECK(oss.rope.kind == RopeKind::yarn);
  CHECK(oss.sliding_window == 128);
  const ModelConfig glm = parse(llama(heads, "Glm4MoeForCausalLM"));
  CHECK(glm.rope.partial_rotary_factor == 0.5);
  CHECK(glm.moe.num_shared_experts == 1);
  CHECK_FALSE(glm.moe.layers[0]);
  CHECK(glm.moe.layers[1]);
  const ModelConfig deepseek = parse(llama(heads, "DeepseekV3ForCausalLM"));
  CHECK(deepseek.moe.routed_scaling_factor == 2.5);
  CHECK(deepseek.moe.topk_group == 4);
  CHECK(deepseek.moe.num_shared_experts == 1);
  CHECK(deepseek.mla.kv_lora_rank == 512);
  for (const char* hybrid : {"Qwen3NextForCausalLM", "Qwen3_5ForCausalLM", "Qwen3_5MoeForCausalLM"})
    CHECK(parse(llama(heads, hybrid)).rope.partial_rotary_factor == 0.25);
  CHECK(parse(llama(heads, "Qwen3_5ForCausalLM")).moe.num_experts == 0);
  CHECK(parse(llama(heads, "Qwen3_5MoeForCausalLM")).moe.num_experts == 256);
  const auto granite = [&](const std::string& more) {
    return parse(llama(heads + R"(,"layer_types":["mamba","attention"])" + more,
                       "GraniteMoeHybridForCausalLM"))
        .rope.kind;
  };
  CHECK(granite("") == RopeKind::none);
  CHECK(granite(R"(,"position_embedding_type":"rope")") == RopeKind::standard);
  for (const char* exact : {"Phi3ForCausalLM", "Olmo2ForCausalLM"})
    CHECK(parse(llama("", exact)).rms_norm_eps == 1e-5);
  CHECK(parse(llama("", "LlamaForCausalLM")).rms_norm_eps == 1e-6);
  CHECK(parse(llama(heads, "MistralForCausalLM")).sliding_window == 4096);
  CHECK(parse(llama(heads + R"(,"sliding_window":null)", "MistralForCausalLM")).layer_types[0] ==
        LayerType::full_attention);
}

TEST_CASE("the text part of Mistral 3 is of the older or the newer class", "[model][config]") {
  const auto text = [](const std::string& part) {
    return parse(R"({"architectures":["Mistral3ForConditionalGeneration"],"text_config":{)" + part +
                 "}}");
  };
  const ModelConfig older = text(R"("model_type":"mistral","sliding_window":null)");
  CHECK(older.vocab_size == 32000);
  CHECK(older.rope.kind == RopeKind::standard);
  const ModelConfig newer = text(R"("model_type":"ministral3")");
  CHECK(newer.vocab_size == 131072);
  CHECK(newer.rope.kind == RopeKind::yarn);
  CHECK(newer.rms_norm_eps == 1e-5);
  CHECK(newer.longest_context == 16384);
}

TEST_CASE("rope_scaling wins where rope_parameters stands beside it", "[model][config]") {
  const ModelConfig both =
      parse(llama(R"("rope_theta":5e5,"rope_scaling":{"rope_type":"linear","factor":4},)"
                  R"("rope_parameters":{"rope_type":"default","rope_theta":1e6})"));
  CHECK(both.rope.kind == RopeKind::linear);
  CHECK(both.rope.theta == 5e5);
  // Empty is absent, for either.
  CHECK(parse(llama(R"("rope_theta":5e5,"rope_scaling":{"type":"linear","factor":4},)"
                    R"("rope_parameters":{})"))
            .rope.factor == 4);
  CHECK(parse(llama(R"("rope_scaling":{},"rope_parameters":{"rope_type":"linear","factor":4})"))
            .rope.factor == 4);
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
  CHECK(c.activation == Activation::gelu_tanh);
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
  CHECK(reach(R"({"type":"llama3","factor":8,"low_freq_factor":1,"high_freq_factor":4,)"
              R"("original_max_position_embeddings":8192})") == 8192);
  CHECK(reach(R"({"type":"linear","factor":8})", "Gemma3ForCausalLM") == 8192);
  CHECK(reach(R"({"type":"linear","factor":1e300})") == 1 << 28);
}

TEST_CASE("queries that later positions would scale end the context", "[model][config]") {
  const auto of = [](const char* beta) {
    return parse(llama(R"("max_position_embeddings":65536,"rope_parameters":{"rope_type":"yarn",)"
                       R"("factor":16,"original_max_position_embeddings":4096,)"
                       R"("llama_4_scaling_beta":)" +
                       std::string(beta) + "}"));
  };
  CHECK(of("0.1").max_position_embeddings == 4096);
  CHECK(of("0.1").longest_context == 4096);
  CHECK(of("0").longest_context == 65536);
}

TEST_CASE("windows apply to the layers that the family says", "[model][config]") {
  using enum LayerType;
  using Types = std::vector<LayerType>;
  CHECK(parse(llama(R"("num_key_value_heads":4,"sliding_window":8)", "MistralForCausalLM"))
            .layer_types == Types{sliding_attention, sliding_attention});
  CHECK(parse(llama(R"("num_key_value_heads":4,"sliding_window":8,"use_sliding_window":false,)"
                    R"("max_window_layers":0)",
                    "Qwen2ForCausalLM"))
            .layer_types == Types{full_attention, full_attention});
  CHECK(parse(llama(R"("num_key_value_heads":4,"sliding_window":8,"use_sliding_window":true,)"
                    R"("max_window_layers":1)",
                    "Qwen2ForCausalLM"))
            .layer_types == Types{full_attention, sliding_attention});
  CHECK(parse(llama(R"("sliding_window":8)", "Gemma2ForCausalLM")).layer_types ==
        Types{sliding_attention, full_attention});
}

TEST_CASE("a window that no context fills is none", "[model][config]") {
  const auto type = [](const char* window) {
    return parse(llama(R"("max_position_embeddings":128,"sliding_window":)" + std::string(window),
                       "Phi3ForCausalLM"))
        .layer_types[0];
  };
  CHECK(type("64") == LayerType::sliding_attention);
  CHECK(type("128") == LayerType::full_attention);
  CHECK(type("256") == LayerType::full_attention);
}

TEST_CASE("a folder or a file that only is near a model's says where that is", "[model][config]") {
  const auto cache = temp_path("models--org--name");
  std::filesystem::create_directories(cache / "snapshots" / "abc");
  CHECK_THROWS_WITH(read_model_config(cache), Catch::Contains("snapshots/abc"));
  std::ofstream(cache / "config.json") << llama();
  CHECK(read_model_config(cache).vocab_size == 100);
  CHECK_THROWS_WITH(read_model_config(cache / "config.json"), Catch::Contains("is a file"));
}

TEST_CASE("numbers that only Python writes are read", "[model][config]") {
  const ModelConfig c =
      parse(R"({"architectures":["NemotronHForCausalLM"],"vocab_size":100,"hidden_size":64,)"
            R"("num_attention_heads":4,"num_key_value_heads":4,"hybrid_override_pattern":"M-*",)"
            R"("mamba_num_heads":8,"mamba_head_dim":16,"ssm_state_size":16,"n_groups":2,)"
            R"("time_step_limit":[0.0, Infinity],"note":"Infinity \" NaN"})");
  CHECK(c.num_layers == 3);
  CHECK(c.mamba2.time_step_max == std::numeric_limits<double>::infinity());
}

TEST_CASE("layers that are listed by name are counted", "[model][config]") {
  const ModelConfig c =
      parse(R"({"architectures":["NemotronHForCausalLM"],"vocab_size":100,"hidden_size":64,)"
            R"("num_attention_heads":4,"num_key_value_heads":4,)"
            R"("layers_block_type":["mamba","mlp","attention","mamba"],)"
            R"("mamba_num_heads":8,"mamba_head_dim":16,"ssm_state_size":16,"n_groups":2})");
  CHECK(c.num_layers == 4);
  CHECK(c.layer_types[2] == LayerType::full_attention);
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

TEST_CASE("a model whose tokens all see each other is refused unless it is an encoder",
          "[model][config]") {
  for (const char* architecture :
       {"LlamaForCausalLM", "Qwen2Model", "Qwen3ForCausalLM", "Gemma3ForCausalLM"}) {
    INFO(architecture);
    const std::string heads = R"("num_key_value_heads":4,)";
    CHECK_THROWS_WITH(parse(llama(heads + R"("is_causal":false)", architecture)),
                      Catch::Contains("is_causal: false is not supported"));
    CHECK(parse(llama(heads + R"("is_causal":true)", architecture)).num_layers == 2);
  }
  CHECK_THROWS_WITH(
      parse(R"({"architectures":["Gemma3ForConditionalGeneration"],"is_causal":false,)"
            R"("text_config":{}})"),
      Catch::Contains("is_causal"));
  CHECK(parse(llama(R"("is_causal":false)", "BertModel")).num_layers == 2);
}

TEST_CASE("Gemma 3 has no cap on attention, whatever its file says", "[model][config]") {
  const std::string cap = R"("attn_logit_softcapping":30,"num_key_value_heads":4)";
  CHECK(parse(llama(cap, "Gemma2ForCausalLM")).attention_soft_cap == 30);
  CHECK(parse(llama(cap, "Gemma3ForCausalLM")).attention_soft_cap == 0);
}

TEST_CASE("Nemotron-H's own fields count, and what it does not compute is refused",
          "[model][config]") {
  const auto nemotron = [](const std::string& more) {
    return parse(llama(R"("num_key_value_heads":4,"hybrid_override_pattern":"M*",)" + more,
                       "NemotronHForCausalLM"));
  };
  CHECK(nemotron(R"("layer_norm_epsilon":1e-3,"rms_norm_eps":1e-6)").rms_norm_eps == 1e-3);
  CHECK(nemotron(R"("rms_norm_eps":1e-6)").rms_norm_eps == 1e-5);  // the class's default
  CHECK_THROWS_WITH(nemotron(R"("mamba_hidden_act":"gelu")"),
                    Catch::Contains("mamba_hidden_act: \"gelu\" is not supported (silu)"));
}

TEST_CASE("Granite's windows with sinks, and its ropes by layer, are refused", "[model][config]") {
  const auto granite = [](const std::string& more) {
    return parse(llama(R"("sliding_window":16,"layer_types":)" + more, "GraniteForCausalLM"));
  };
  const std::string full = R"(["full_attention","full_attention"])";
  const std::string some = R"(["full_attention","sliding_attention"])";
  CHECK(granite(full).layer_types.size() == 2);
  CHECK(granite(some + R"(,"attention_sinks":false)").layer_types.size() == 2);
  CHECK_THROWS_WITH(granite(some), Catch::Contains("attention_sinks: is not supported"));
  CHECK_THROWS_WITH(granite(full + R"(,"attention_sinks":true)"), Catch::Contains("attention_sinks"));
  CHECK_THROWS_WITH(granite(full + R"(,"layer_rope_theta":[1e4,0])"),
                    Catch::Contains("layer_rope_theta: is not supported"));
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
      {R"({"architectures":["Qwen3_5ForConditionalGeneration"],"text_config":{"vocab_size":0}})",
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
      {llama(R"("num_key_value_heads":4,"num_local_experts":null)", "MixtralForCausalLM"),
       "num_experts: is missing"},
      {llama(R"("num_key_value_heads":4,"num_local_experts":4,"num_experts_per_tok":5)",
             "MixtralForCausalLM"),
       "num_experts_per_tok: must be an integer from 1 to 4"},
      {llama(R"("num_key_value_heads":4,"kv_lora_rank":null)", "DeepseekV3ForCausalLM"),
       "kv_lora_rank: is missing"},
      {llama(R"("num_key_value_heads":4,"sliding_window":null)", "GptOssForCausalLM"),
       "sliding_window: is missing"},
  }));
  INFO(c.json);
  CHECK_THROWS_WITH(parse(c.json),
                    Catch::Contains(c.message) && Catch::StartsWith("config.json: "));
}

TEST_CASE("an end token of -1 is none", "[model][config]") {
  CHECK(parse(llama(R"("eos_token_id":-1,"bos_token_id":-1)")).eos_token_ids.empty());
  CHECK(parse_generation_config(R"({"eos_token_id":[-1,2]})", "g.json").eos_token_ids ==
        std::vector<std::int32_t>{2});
}

}  // namespace
}  // namespace quire::test
