#include "app/bench/model.h"

#include <algorithm>
#include <string_view>

#include "model/checkpoint.h"

namespace quire {
namespace {

double elements_of(const std::string& name, const StoredTensor& tensor, const ModelConfig& config) {
  double elements = 1;
  for (const std::int64_t extent : tensor.shape) elements *= static_cast<double>(extent);
  if (name.ends_with("_blocks")) return 2 * elements;  // mxfp4, two in a byte
  const bool words = name.ends_with(".qweight") || name.ends_with(".weight_packed");
  return words && config.quant.packed ? elements * 32 / config.quant.packed->bits : elements;
}

bool is_matrix(const std::string& name, const StoredTensor& tensor) {
  if (tensor.shape.size() < 2 || name.find("conv1d") != std::string::npos) return false;
  return name.ends_with(".weight") || name.ends_with(".qweight") || name.ends_with("_blocks") ||
         name.ends_with(".weight_packed") || name.ends_with("_proj");
}

void add_attention(BenchModel& model, const ModelConfig& config) {
  const auto layers = static_cast<double>(
      std::count_if(config.layer_types.begin(), config.layer_types.end(), [](LayerType type) {
        return type == LayerType::full_attention || type == LayerType::sliding_attention;
      }));
  const MlaConfig& mla = config.mla;
  if (mla.kv_lora_rank > 0) {
    model.kv_elements = layers * (mla.kv_lora_rank + mla.qk_rope_head_dim);
    // Absorbed or expanded; products with kv_b_proj are the weights'.
    const int absorbed = 2 * mla.kv_lora_rank + mla.qk_rope_head_dim;
    const int expanded = mla.qk_nope_head_dim + mla.qk_rope_head_dim + mla.v_head_dim;
    model.attention_products = layers * config.num_heads * std::min(absorbed, expanded);
    return;
  }
  model.kv_elements = layers * 2 * config.num_kv_heads * config.head_dim;
  model.attention_products = layers * 2 * config.num_heads * config.head_dim;
}

}  // namespace

BenchModel bench_model(const std::string& path, const ModelConfig& config) {
  BenchModel model;
  add_attention(model, config);
  if (!Checkpoint::is_in(path)) return model;
  const Checkpoint checkpoint(path);
  const double share = config.moe.num_experts > 0 ? static_cast<double>(config.moe.num_experts_per_tok) /
                                                        config.moe.num_experts
                                                  : 1;
  for (const auto& [view, entry] : checkpoint.tensors()) {
    const std::string name(view);
    const StoredTensor& tensor = *entry.tensor;
    const bool table = name.find("embed_tokens.") != std::string::npos;
    const bool head = name.starts_with("lm_head.") || (table && config.tie_word_embeddings);
    const double part = name.find(".experts.") != std::string::npos ? share : 1;
    model.file_bytes += static_cast<double>(tensor.bytes);
    if (!table || head) model.step_bytes += part * static_cast<double>(tensor.bytes);
    if (!is_matrix(name, tensor)) continue;
    const double products = part * elements_of(name, tensor, config);
    if (head) model.head_products += products;
    if (!head && !table) model.token_products += products;
  }
  return model;
}

}  // namespace quire
