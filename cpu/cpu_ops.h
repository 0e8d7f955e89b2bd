#pragma once
// Ops on CPU threads: checks shapes, cuts the work into rows, calls this machine's kernels. Scratch
// grows to the largest step seen and stays.

#include <vector>

#include "backend/ops.h"
#include "cpu/cpu_backend.h"
#include "cpu/kernels/kernels.h"
#include "cpu/thread_pool.h"

namespace quire {

class CpuOps : public Ops {
 public:
  explicit CpuOps(const CpuOptions& options);

  const OpsTraits& traits() const override { return cpu_traits(); }

  void embedding(TensorView out, TensorView table, TensorView ids, StreamRef stream) override;
  void gather_rows(TensorView out, TensorView x, TensorView rows, StreamRef stream) override;
  void linear(TensorView out, TensorView x, TensorView weight, TensorView bias,
              StreamRef stream) override;
  void rms_norm(TensorView out, TensorView x, TensorView weight, float eps, float weight_offset,
                StreamRef stream) override;
  void add_rms_norm(TensorView out, TensorView residual, TensorView x, TensorView weight, float eps,
                    float weight_offset, StreamRef stream) override;
  void add(TensorView out, TensorView a, TensorView b, StreamRef stream) override;
  void scale(TensorView x, float factor, StreamRef stream) override;
  void rope(TensorView x, TensorView positions, TensorView cos_sin, RopeStyle style,
            StreamRef stream) override;
  void gated_activation(TensorView out, TensorView gate_up, Activation activation,
                        StreamRef stream) override;
  void kv_write(TensorView k_cache, TensorView v_cache, TensorView k, TensorView v,
                TensorView slots, CacheScale scale, StreamRef stream) override;
  void paged_attention(const AttentionArgs& args, StreamRef stream) override;
  void mask_logits(TensorView logits, const MaskArgs& args, StreamRef stream) override;
  void bias_logits(TensorView logits, const BiasArgs& args, StreamRef stream) override;
  void penalize_logits(TensorView logits, const PenaltyArgs& args, StreamRef stream) override;
  void set_token_counts(TensorView counts, const TokenCountArgs& args, StreamRef stream) override;
  void count_tokens(TensorView counts, TensorView slots, TensorView tokens,
                    StreamRef stream) override;
  void sample(TensorView tokens, TensorView logits, const SamplingArgs& args,
              StreamRef stream) override;
  void log_probs(TensorView top_ids, TensorView top_values, TensorView token_value,
                 TensorView token_rank, TensorView logits, TensorView tokens,
                 StreamRef stream) override;

  void copy(TensorView out, TensorView x, StreamRef stream) override;
  void soft_cap(TensorView x, float cap, StreamRef stream) override;
  void activation(TensorView out, TensorView x, Activation activation, StreamRef stream) override;
  void sigmoid_gate(TensorView x, TensorView gate, StreamRef stream) override;
  void head_linear(TensorView out, TensorView x, TensorView weight, StreamRef stream) override;
  void quantized_linear(TensorView out, TensorView x, const Weight& weight, TensorView bias,
                        TensorView workspace, StreamRef stream) override;
  void mla_attention(const MlaArgs& args, StreamRef stream) override;
  void moe_route(const MoeRouteArgs& args, StreamRef stream) override;
  void moe_experts(const MoeExpertsArgs& args, StreamRef stream) override;
  void causal_conv(const ConvArgs& args, StreamRef stream) override;
  void gated_delta_rule(const DeltaRuleArgs& args, StreamRef stream) override;
  void selective_scan(const ScanArgs& args, StreamRef stream) override;
  void gated_rms_norm(TensorView out, TensorView x, TensorView gate, TensorView weight, float eps,
                      bool norm_first, StreamRef stream) override;
  void copy_blocks(TensorView pages, TensorView to, TensorView from, StreamRef stream) override;
  void zero_blocks(TensorView pages, TensorView ids, StreamRef stream) override;
  void write_block_tables(std::span<const TableGroup> groups, const TableWrites& writes,
                          StreamRef stream) override;
  void gather_block_tables(std::span<const TableGroup> groups, const TableRows& rows,
                           StreamRef stream) override;
  void slot_mapping(std::span<const TableGroup> groups, const TableRows& rows,
                    const ContextParallel& cp, StreamRef stream) override;

 private:
  // body(begin, end) over rows that cost about work_per_row element operations each.
  template <class F>
  void for_rows(std::int64_t rows, std::int64_t work_per_row, F&& body) {
    constexpr std::int64_t kWorthSharing = 16 << 10;
    pool_.parallel_for(rows, kWorthSharing / (work_per_row + 1) + 1, body);
  }

  // A product's weight: rows of a plain matrix, or of packed ones that are unpacked block by block.
  struct Matrix {
    const std::byte* data = nullptr;
    const void* scales = nullptr;
    WeightFormat format = WeightFormat::plain;
    cpu::Float type = cpu::Float::f32;  // plain: of data
    std::int64_t stride = 0;            // plain: elements between rows
    std::int64_t k = 0;
    std::int64_t scale_stride = 0;  // fp8_blocks: floats between rows of scales
  };
  static Matrix matrix_of(TensorView weight);
  static Matrix matrix_of(const Weight& weight, std::int64_t expert);

  // Columns [begin, end) of a packed matrix, in a type that products take.
  void unpack(const Matrix& weight, std::int64_t begin, std::int64_t end, cpu::Float type,
              void* out) const;
  cpu::Float product_type(DType x, const Matrix& weight) const;
  TensorView product_input(TensorView x, cpu::Float type);
  void product(const cpu::GemmArgs& args, const Matrix& weight, cpu::Float type,
               std::int64_t m_begin, std::int64_t m_end, std::int64_t n_begin, std::int64_t n_end);
  std::int64_t task_columns(cpu::Float type, std::int64_t rows) const;
  void linear_into(TensorView out, TensorView x, const Matrix& weight, std::int64_t n,
                   TensorView bias);
  // Pairs (token, choice) sorted by expert: those of expert e are pairs[start[e] … start[e + 1]).
  struct ExpertPlan {
    std::int32_t* start;
    std::int32_t* pairs;     // token · choices + choice
    std::int32_t* position;  // of each pair in pairs
    std::int32_t* active;    // experts with pairs
    std::int64_t num_active = 0;
  };
  // memory: 2 · experts + 1 + 2 · pairs numbers.
  static ExpertPlan plan_experts(TensorView ids, std::int64_t experts, std::int32_t* memory);
  void expert_product(const ExpertPlan& plan, TensorView out, TensorView in, const Weight& weight,
                      TensorView bias);

  void norm(const cpu::NormArgs& args, std::int64_t rows);
  void activate(const cpu::ActArgs& args, std::int64_t rows);
  void attend(const cpu::PagedArgs& args, std::int64_t requests);
  void attend_whole(const cpu::PagedArgs& args, std::int64_t work);
  void attend_split(const cpu::PagedArgs& args, std::int64_t work);

  ThreadPool pool_;
  cpu::Kernels kernels_;
  std::vector<std::byte> input_;  // x in the type that a product wants
  std::vector<float> partials_;   // softmax states of split attention
  std::vector<cpu::AttentionItem> items_;
  struct AttentionPart {
    std::size_t item;
    std::int64_t segment, offset;  // offset into partials_
  };
  std::vector<AttentionPart> parts_;
};

// float32, bf16 or f16; anything else throws.
cpu::Float float_of(DType dtype);
cpu::Act act_of(Activation activation);
// [rows, width] or [outer, inner, width] with adjacent elements in a row.
cpu::Rows rows_of(TensorView view);
// This thread's scratch, at least bytes long, 64-byte aligned; valid until the next call.
void* thread_scratch(std::size_t bytes);

}  // namespace quire
