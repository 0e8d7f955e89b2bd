// A model whose heads are as wide as published ones, so that the CUDA backend, emulated, expands
// its prompts: logits against those of the CPU, absorbed and in float32.

#include <catch2/catch.hpp>

#include <cmath>
#include <random>

#include "app/check/run.h"
#include "backend/dtype.h"
#include "cpu/cpu_backend.h"
#include "model/config.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/direct_runner.h"

namespace quire {
namespace {

constexpr std::int64_t kHidden = 64, kHeads = 2, kVocab = 96, kInner = 96;

class LatentModel {
 public:
  LatentModel() : folder_("latents") {
    folder_.write_config(R"({"architectures": ["DeepseekV3ForCausalLM"], "hidden_size": 64,
      "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2,
      "q_lora_rank": null, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
      "v_head_dim": 128, "vocab_size": 96, "intermediate_size": 96, "first_k_dense_replace": 2,
      "moe_intermediate_size": 32, "n_routed_experts": 4, "num_experts_per_tok": 2,
      "n_shared_experts": 1, "n_group": 1, "topk_group": 1, "norm_topk_prob": true,
      "routed_scaling_factor": 1.0, "max_position_embeddings": 1024, "rms_norm_eps": 1e-6,
      "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": false,
      "attention_bias": false, "torch_dtype": "bfloat16", "eos_token_id": 95})");
    add("model.embed_tokens", {kVocab, kHidden}, 1);
    for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
      ones(layer + "input_layernorm", kHidden);
      ones(layer + "post_attention_layernorm", kHidden);
      const std::string attention = layer + "self_attn.";
      add(attention + "q_proj", {kHeads * 192, kHidden}, 1);
      add(attention + "kv_a_proj_with_mqa", {576, kHidden}, 1);
      ones(attention + "kv_a_layernorm", 512);
      add(attention + "kv_b_proj", {kHeads * 256, 512}, 1.5);  // scores far from all alike
      add(attention + "o_proj", {kHidden, kHeads * 128}, 2);
      add(layer + "mlp.gate_proj", {kInner, kHidden}, 1);
      add(layer + "mlp.up_proj", {kInner, kHidden}, 1);
      add(layer + "mlp.down_proj", {kHidden, kInner}, 1);
    }
    ones("model.norm", kHidden);
    add("lm_head", {kVocab, kHidden}, 2);
    folder_.write_tensors(tensors_);
  }

  const std::filesystem::path& path() const { return folder_.path(); }

 private:
  // gain: of a product with the matrix.
  void add(const std::string& name, std::vector<std::int64_t> shape, double gain) {
    std::normal_distribution<double> normal(0, gain / std::sqrt(static_cast<double>(shape[1])));
    put(name, shape, [&] { return static_cast<float>(normal(random_)); });
  }
  void ones(const std::string& name, std::int64_t count) {
    put(name, {count}, [] { return 1.f; });
  }
  template <class F>
  void put(const std::string& name, const std::vector<std::int64_t>& shape, const F& next) {
    std::vector<std::uint16_t> values(1);
    for (const std::int64_t n : shape) values.resize(values.size() * static_cast<std::size_t>(n));
    for (std::uint16_t& value : values) value = bf16(next()).bits;
    tensors_[name + ".weight"] = test::file_tensor("BF16", shape, values);
  }

  test::ModelFolder folder_;
  std::map<std::string, test::FileTensor> tensors_;
  std::mt19937 random_{11};
};

Golden reference_of(const LatentModel& model, std::span<const int> lengths) {
  const auto device = make_cpu_device();
  const auto ops = make_cpu_ops({.threads = 2});
  const auto loaded = load_model(read_model_config(model.path()), model.path(), *device,
                                 ops->traits(), {.dtype = DType::f32, .same_bits = true});
  DirectRunner runner(*loaded, *device, *ops, {.same_bits = true});
  Golden golden;
  golden.vocab_size = kVocab;
  std::mt19937 random(5);
  for (const int length : lengths) {
    GoldenCase& c = golden.cases.emplace_back();
    for (int i = 0; i < length; ++i)
      c.prompt.push_back(static_cast<TokenId>(random() % (kVocab - 1)));
    const int request = runner.add_request(length);
    c.logits = runner.step({{request, c.prompt}});
    runner.finish(request);
    c.greedy.assign(3, 0);  // so many steps decode; which tokens is not compared
  }
  return golden;
}

struct Setting {
  int max_tokens, batch;
  DType dtype;
  std::optional<DType> cache;
};

// Of each case.
std::vector<double> distances(const LatentModel& model, const Golden& golden, const Setting& s,
                              DeviceKind device) {
  EngineConfig config;
  config.device = device;
  config.cpu_threads = device == DeviceKind::cpu ? 2 : 0;
  config.model.path = model.path().string();
  config.model.dtype = s.dtype;
  config.model.max_model_len = 512;
  config.cache.cache_dtype = s.cache;
  config.cache.num_gpu_blocks_override = 129;
  config.scheduler.max_num_seqs = 8;
  config.scheduler.max_num_batched_tokens = s.max_tokens;
  std::vector<double> all;
  for (const CaseResult& result : CheckRun(config, golden).run(s.batch))
    all.push_back(result.distance.mean_kl);
  return all;
}

}  // namespace

TEST_CASE("prompts of latent attention answer expanded on emulated CUDA as absorbed on the CPU",
          "[app][check][cuda][mla]") {
  const LatentModel model;
  const int lengths[] = {150, 7, 300, 90};
  const Golden golden = reference_of(model, lengths);
  const std::vector<Setting> settings = {
      {320, 4, DType::bf16, {}},  // chunks beside others' decodes
      {320, 2, DType::f16, {}},
      {320, 2, DType::bf16, DType::fp8_e4m3},
  };
  for (const Setting& s : settings) {
    INFO("steps of " << s.max_tokens << ", " << name_of(s.dtype) << (s.cache ? " over fp8" : ""));
    const std::vector<double> here = distances(model, golden, s, DeviceKind::cpu),
                              there = distances(model, golden, s, DeviceKind::cuda);
    for (std::size_t i = 0; i < golden.cases.size(); ++i) {
      INFO("prompt of " << lengths[i]);
      CHECK(here[i] > 0);
      CHECK(there[i] <= 1.5 * here[i]);
    }
  }
}

}  // namespace quire
