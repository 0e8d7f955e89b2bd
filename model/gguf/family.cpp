#include "model/gguf/family.h"

#include <algorithm>

#include "gguf/printable.h"

namespace quire {

namespace {

constexpr ModuleName kUsual[] = {
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm"},
    {"output", "lm_head"},
    {"attn_norm", "input_layernorm"},
    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"},
    {"attn_qkv", "self_attn.qkv_proj"},
    {"attn_output", "self_attn.o_proj"},
    {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"},
    {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},
    {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
    {"ffn_gate_inp", "mlp.gate"},
    {"ffn_gate_exps", "mlp.experts.*.gate_proj"},
    {"ffn_up_exps", "mlp.experts.*.up_proj"},
    {"ffn_down_exps", "mlp.experts.*.down_proj"},
};

constexpr ModuleName kMixtral[] = {
    {"ffn_gate_inp", "block_sparse_moe.gate"},
    {"ffn_gate_exps", "block_sparse_moe.experts.*.w1"},
    {"ffn_up_exps", "block_sparse_moe.experts.*.w3"},
    {"ffn_down_exps", "block_sparse_moe.experts.*.w2"},
};

constexpr ModuleName kPhi3[] = {{"ffn_up", "mlp.gate_up_proj"}};

constexpr ModuleName kSandwich[] = {
    {"post_attention_norm", "post_attention_layernorm"},
    {"ffn_norm", "pre_feedforward_layernorm"},
    {"post_ffw_norm", "post_feedforward_layernorm"},
};

constexpr GgufFamily kFamilies[] = {
    {.architecture = "llama", .published = "LlamaForCausalLM", .modules = {}, .paired_rows = true},
    {.architecture = "qwen2", .published = "Qwen2ForCausalLM", .modules = {}},
    {.architecture = "qwen3", .published = "Qwen3ForCausalLM", .modules = {}},
    {.architecture = "qwen3moe", .published = "Qwen3MoeForCausalLM", .modules = {}},
    {.architecture = "gemma2",
     .published = "Gemma2ForCausalLM",
     .modules = kSandwich,
     .norms_plus_one = true},
    {.architecture = "gemma3",
     .published = "Gemma3ForCausalLM",
     .modules = kSandwich,
     .norms_plus_one = true},
    {.architecture = "phi3", .published = "Phi3ForCausalLM", .modules = kPhi3},
    {.architecture = "granite",
     .published = "GraniteForCausalLM",
     .modules = {},
     .paired_rows = true},
    {.architecture = "olmo2", .published = "Olmo2ForCausalLM", .modules = kSandwich},
};

// llama.cpp's "llama" is Mixtral too.
constexpr GgufFamily kLlamaWithExperts = {.architecture = "llama",
                                          .published = "MixtralForCausalLM",
                                          .modules = kMixtral,
                                          .paired_rows = true};

constexpr IntRange kHeadRange{1, 1 << 14};

}  // namespace

std::string family_key(const GgufFamily& family, std::string_view name) {
  return std::string(family.architecture) + "." + std::string(name);
}

const GgufFamily& gguf_family(const gguf::Metadata& metadata) {
  const std::string_view name = metadata.need_text("general.architecture");
  if (name == "llama" && metadata.integer("llama.expert_count", {0, 1 << 14}).value_or(0) > 0) {
    return kLlamaWithExperts;
  }
  std::string known;
  for (const GgufFamily& family : kFamilies) {
    if (family.architecture == name) return family;
    known += (known.empty() ? "" : ", ") + std::string(family.architecture);
  }
  metadata.fail("general.architecture",
                gguf::printable(name) + " is not supported (" + known + ")",
                ErrorCode::unsupported);
}

std::string_view published_module(const GgufFamily& family, std::string_view stored) {
  for (const auto names : {family.modules, std::span<const ModuleName>(kUsual)}) {
    const auto found = std::ranges::find(names, stored, &ModuleName::stored);
    if (found != names.end()) return found->published;
  }
  return {};
}

std::string_view stored_module(const GgufFamily& family, std::string_view published) {
  for (const auto names : {family.modules, std::span<const ModuleName>(kUsual)}) {
    const auto found = std::ranges::find(names, published, &ModuleName::published);
    if (found != names.end()) return found->stored;
  }
  return {};
}

RotatedHeads rotated_heads(const GgufFamily& family, const gguf::Metadata& metadata) {
  if (!family.paired_rows) return {};
  const std::int64_t queries =
      metadata.need_integer(family_key(family, "attention.head_count"), kHeadRange);
  const std::int64_t keys =
      metadata.integer(family_key(family, "attention.head_count_kv"), kHeadRange).value_or(queries);
  return {static_cast<int>(queries), static_cast<int>(keys)};
}

}  // namespace quire
