// Ops on CUDA: each operator is a launcher of cuda/kernels.

#include "cuda/cuda_backend.h"
#include "cuda/cuda_traits.h"
#include "cuda/fp8_scratch.h"
#include "cuda/gemm.h"
#include "cuda/kernels/attention.h"
#include "cuda/kernels/draws.h"
#include "cuda/kernels/expanded_attention.h"
#include "cuda/kernels/launchers.h"

namespace quire {
namespace {

class CudaOps final : public Ops, public DraftOps {
 public:
  CudaOps(Device& device, const CudaOpsOptions& options)
      : gemm_workspace_(device.allocate(cuda::kGemmWorkspaceBytes, MemoryPurpose::kernels)),
        gemm_(cuda::make_gemm({.workspace = gemm_workspace_.data(),
                               .choices_folder = options.choices_folder,
                               .report = options.report,
                               .choosing_seconds = options.choosing_seconds})),
        split_scratch_(device.allocate(cuda::kSplitScratchBytes, MemoryPurpose::kernels)),
        arrived_(
            device.allocate_zeroed(cuda::kArrivedParts * sizeof(int), MemoryPurpose::kernels)) {}

  const OpsTraits& traits() const override { return cuda_traits(); }
  void begin_choosing() override { gemm_->begin_choosing(); }
  void end_choosing() override { gemm_->end_choosing(); }

  void embedding(TensorView out, TensorView table, TensorView ids, StreamRef stream) override {
    cuda::embedding(out, table, ids, stream);
  }
  void embedding_share(TensorView out, TensorView table, std::int64_t first, TensorView ids,
                       StreamRef stream) override {
    cuda::embedding_share(out, table, first, ids, stream);
  }
  void quantized_embedding(TensorView out, const Weight& weight, std::int64_t first, TensorView ids,
                           StreamRef stream) override {
    cuda::quantized_embedding(out, weight, first, ids, stream);
  }
  void gather_rows(TensorView out, TensorView x, TensorView rows, StreamRef stream) override {
    cuda::gather_rows(out, x, rows, stream);
  }
  void linear(TensorView out, TensorView x, TensorView weight, TensorView bias,
              StreamRef stream) override {
    const FusedLinearArgs args{out, x, {.data = weight, .scales = {}}, bias};
    if (cuda::small_linear_supports(args)) return cuda::small_linear(args, stream);
    gemm_->linear(out, x, weight, bias, stream);
  }
  void rms_norm(TensorView out, TensorView x, TensorView weight, float eps, float weight_offset,
                StreamRef stream) override {
    cuda::rms_norm(out, x, weight, eps, weight_offset, stream);
  }
  void add_rms_norm(TensorView out, TensorView residual, TensorView x, TensorView weight, float eps,
                    float weight_offset, StreamRef stream) override {
    cuda::add_rms_norm(out, residual, x, weight, eps, weight_offset, stream);
  }
  void add(TensorView out, TensorView a, TensorView b, StreamRef stream) override {
    cuda::add(out, a, b, stream);
  }
  void scale(TensorView x, float factor, StreamRef stream) override {
    cuda::scale(x, factor, stream);
  }
  void rope(TensorView x, TensorView positions, TensorView cos_sin, RopeStyle style,
            StreamRef stream) override {
    cuda::rope(x, positions, cos_sin, style, stream);
  }
  void gated_activation(TensorView out, TensorView gate_up, Activation activation,
                        StreamRef stream) override {
    cuda::gated_activation(out, gate_up, activation, stream);
  }
  bool fused_linear(const FusedLinearArgs& args, StreamRef stream) override {
    const bool packed = cuda::few_fragments_fuses(args);
    if (packed) cuda::few_fragments(args, stream);
    const bool plain = !packed && cuda::small_linear_supports(args);
    if (plain) cuda::small_linear(args, stream);
    return packed || plain;
  }
  void kv_write(TensorView k_cache, TensorView v_cache, TensorView k, TensorView v,
                TensorView slots, CacheScale scale, StreamRef stream) override {
    cuda::kv_write(k_cache, v_cache, k, v, slots, scale, stream);
  }
  void prepare_heads(const HeadArgs& args, StreamRef stream) override {
    cuda::prepare_heads(args, stream);
  }
  void paged_attention(const AttentionArgs& args, StreamRef stream) override {
    cuda::paged_attention(args, scratch(), stream);
  }
  void attend_new(const HeadArgs& heads, const AttentionArgs& args, StreamRef stream) override {
    cuda::attend_new(heads, args, scratch(), stream);
  }
  void mask_logits(TensorView logits, const MaskArgs& args, StreamRef stream) override {
    cuda::mask_logits(logits, args, stream);
  }
  void bias_logits(TensorView logits, const BiasArgs& args, StreamRef stream) override {
    cuda::bias_logits(logits, args, stream);
  }
  void penalize_logits(TensorView logits, const PenaltyArgs& args, StreamRef stream) override {
    cuda::penalize_logits(logits, args, stream);
  }
  void set_token_counts(TensorView counts, const TokenCountArgs& args, StreamRef stream) override {
    cuda::set_token_counts(counts, args, stream);
  }
  void count_tokens(TensorView counts, TensorView slots, TensorView tokens,
                    StreamRef stream) override {
    cuda::count_tokens(counts, slots, tokens, stream);
  }
  void sample(TensorView tokens, TensorView logits, const SamplingArgs& args,
              StreamRef stream) override {
    cuda::sample(tokens, logits, args, scratch(), stream);
  }
  void draw_drafts(TensorView tokens, TensorView shares, TensorView logits, TensorView places,
                   const SamplingArgs& args, StreamRef stream) override {
    cuda::draw_drafts(tokens, shares, logits, places, args, stream);
  }
  void settle_drafts(const HeldArgs& args, StreamRef stream) override {
    cuda::settle_drafts(args, stream);
  }
  void lag_numbers(TensorView numbers, TensorView at, TensorView line, TensorView lost,
                   StreamRef stream) override {
    cuda::lag_numbers(numbers, at, line, lost, stream);
  }
  void verify_drafts(TensorView logits, const VerifyArgs& args, StreamRef stream) override {
    cuda::verify_drafts(logits, args, stream);
  }
  void log_probs(TensorView top_ids, TensorView top_values, TensorView token_value,
                 TensorView token_rank, TensorView logits, TensorView tokens,
                 StreamRef stream) override {
    cuda::log_probs(top_ids, top_values, token_value, token_rank, logits, tokens, scratch(),
                    stream);
  }
  void copy(TensorView out, TensorView x, StreamRef stream) override { cuda::copy(out, x, stream); }
  void soft_cap(TensorView x, float cap, StreamRef stream) override {
    cuda::soft_cap(x, cap, stream);
  }
  void activation(TensorView out, TensorView x, Activation activation, StreamRef stream) override {
    cuda::activation(out, x, activation, stream);
  }
  void sigmoid_gate(TensorView x, TensorView gate, StreamRef stream) override {
    cuda::sigmoid_gate(x, gate, stream);
  }
  void head_linear(TensorView out, TensorView x, TensorView weight, StreamRef stream) override {
    gemm_->head_linear(out, x, weight, stream);
  }
  void quantized_linear(TensorView out, TensorView x, const Weight& weight, TensorView bias,
                        TensorView workspace, StreamRef stream) override {
    const FusedLinearArgs args{out, x, weight, bias};
    if (cuda::small_linear_supports(args)) return cuda::small_linear(args, stream);
    if (gemm_->has_fp8() && cuda::suits_fp8(weight, x.dtype()))
      return cuda::fp8_linear(*gemm_, out, x, weight, bias, workspace, stream);
    cuda::quantized_linear(out, x, weight, bias, stream);
  }
  void mla_attention(const MlaArgs& args, StreamRef stream) override {
    cuda::mla_attention(args, scratch(), stream);
  }
  void mla_prompt_attention(const MlaPromptArgs& args, StreamRef stream) override {
    cuda::mla_prompt_attention(*gemm_, args, scratch(), stream);
  }
  void moe_route(const MoeRouteArgs& args, StreamRef stream) override {
    cuda::moe_route(args, stream);
  }
  void moe_experts(const MoeExpertsArgs& args, StreamRef stream) override {
    cuda::moe_experts(args, stream);
  }
  void causal_conv(const ConvArgs& args, StreamRef stream) override {
    cuda::causal_conv(args, stream);
  }
  void gated_delta_rule(const DeltaRuleArgs& args, StreamRef stream) override {
    cuda::gated_delta_rule(args, stream);
  }
  void selective_scan(const ScanArgs& args, StreamRef stream) override {
    cuda::selective_scan(args, stream);
  }
  void gated_rms_norm(TensorView out, TensorView x, TensorView gate, TensorView weight, float eps,
                      bool norm_first, StreamRef stream) override {
    cuda::gated_rms_norm(out, x, gate, weight, eps, norm_first, stream);
  }
  void copy_blocks(TensorView pages, TensorView to, TensorView from, StreamRef stream) override {
    cuda::copy_blocks(pages, to, from, stream);
  }
  void zero_blocks(TensorView pages, TensorView ids, StreamRef stream) override {
    cuda::zero_blocks(pages, ids, stream);
  }
  void write_block_tables(std::span<const TableGroup> groups, const TableWrites& writes,
                          StreamRef stream) override {
    cuda::write_block_tables(groups, writes, stream);
  }
  void gather_block_tables(std::span<const TableGroup> groups, const TableRows& rows,
                           StreamRef stream) override {
    cuda::gather_block_tables(groups, rows, stream);
  }
  void slot_mapping(std::span<const TableGroup> groups, const TableRows& rows,
                    const ContextParallel& cp, StreamRef stream) override {
    cuda::slot_mapping(groups, rows, cp, stream);
  }

 private:
  cuda::SplitScratch scratch() const {
    return {.data = static_cast<float*>(split_scratch_.data()),
            .floats = static_cast<std::int64_t>(cuda::kSplitScratchBytes / sizeof(float)),
            .arrived = static_cast<int*>(arrived_.data()),
            .counters = static_cast<std::int64_t>(cuda::kArrivedParts)};
  }

  Buffer gemm_workspace_;
  std::unique_ptr<cuda::Gemm> gemm_;
  Buffer split_scratch_, arrived_;
};

}  // namespace

std::unique_ptr<Ops> make_cuda_ops(Device& device, const CudaOpsOptions& options) {
  return std::make_unique<CudaOps>(device, options);
}

}  // namespace quire
