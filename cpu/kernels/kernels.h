#pragma once
// What the operators ask of the kernels, which are compiled once per instruction set: plain data
// in, a range of the work at a time, and a table of functions. Included by sources with different
// compiler flags, so nothing in here is an inline function.

#include <cstdint>

namespace quire::cpu {

enum class Float : std::uint8_t { f32, bf16, f16, e4m3 };

struct Bf16 {
  std::uint16_t bits;
};
struct F16 {
  std::uint16_t bits;
};
struct E4m3 {  // only in caches and weights; backend/fp8.h says what it means
  std::uint8_t bits;
};

// A matrix, or a [outer, inner, width] tensor seen as outer · inner rows. Elements of a row are
// adjacent; strides are in elements.
struct Rows {
  void* data = nullptr;
  Float type = Float::f32;
  std::int64_t stride = 0;  // of the outer index
  std::int64_t inner = 1;
  std::int64_t inner_stride = 0;
};

enum class Act : std::uint8_t { silu, gelu_tanh, relu2, clamped_swiglu, tanh_cap };

struct NormArgs {
  Rows out, x;
  Rows residual;       // data may be null; else residual += x and its rms norm is taken
  Rows gate;           // data may be null
  const void* weight;  // [width] or [weight_rows, width], row i uses weight row i % weight_rows
  Float weight_type;
  std::int64_t weight_rows;
  std::int64_t width;
  float eps;
  float weight_offset;
  bool norm_first;  // with a gate: norm, weight, then gate
};

struct ActArgs {
  Rows out, x;
  Rows up;  // data may be null: no gate
  std::int64_t width;
  Act act;
  float limit;  // clamped_swiglu: clamp; tanh_cap: cap
  float alpha;
};

// out = a + b, a · factor (b.data null), or a · sigmoid(gate).
struct BinaryArgs {
  Rows out, a, b;
  std::int64_t width;
  std::int64_t b_width;  // 1: one value for the whole row
  float factor;
};

struct RopeArgs {
  Rows x;  // [T, heads, D]; rows are heads
  const std::int32_t* positions;
  const float* cos_sin;  // [positions, rotary]: cos, then sin
  std::int64_t rotary;
  std::int64_t heads;
  bool interleaved;
};

// out[m, n] = scale[n] · Σ_k x[m, k] · w[n, k] + bias[n]
struct GemmArgs {
  const void* w;
  Float w_type;
  std::int64_t w_stride;
  const void* x;  // float for gemm_f32, Bf16 for gemm_bf16
  std::int64_t x_stride;
  void* out;
  Float out_type;
  std::int64_t out_stride;
  const void* bias;  // [N], may be null
  Float bias_type;
  std::int64_t k;
  const float* scale = nullptr;  // [N], may be null: 1
};

// Rows of x in 8 bits by groups of 32 columns: x ≈ scale · code. Rows stand in blocks of
// kGroupInputRows, so that a group's codes of a block are 512 bytes side by side.
struct GroupInputRows {
  std::int8_t* codes;    // [blocks, k / 32, block, 32]
  float* scales;         // [blocks, k / 32, block]
  // By half a group where the weights' scales are of 16 columns, else the first is the group's.
  std::int32_t* starts;  // [blocks, k / 32, 2, block]: −zero · Σ codes, what integer sums begin with
  float* mins;           // likewise: −scale · Σ codes, what minima are multiplied by
};

inline constexpr std::int64_t kGroupInputRows = 16;

// out[m, n] = x[m] · w[n] + bias[n] of weights in groups (backend/group_weights.h), x as
// quantize_groups makes it; k is a multiple of 32.
struct GroupGemmArgs {
  const std::uint8_t* w;
  std::int64_t w_stride;  // bytes of 16 rows
  std::int64_t tile_bytes;
  int bits, group;
  bool has_min;
  const std::uint8_t* table;  // null: codes are what they stand for
  GroupInputRows x;
  void* out;
  Float out_type;
  std::int64_t out_stride;
  const void* bias;  // [n], may be null
  Float bias_type;
  std::int64_t n, k;
};

struct PagedArgs {
  Rows out;  // [T, heads, value_dim]
  Rows q;    // [T, heads, head_dim]
  const void* k_cache;
  const void* v_cache;
  Float cache_type;                       // e4m3 too
  std::int64_t k_stride[3], v_stride[3];  // block, slot, head
  const std::int32_t* block_table;
  std::int64_t table_stride;
  std::int64_t block_size;
  const std::int32_t* query_start;
  const std::int32_t* seq_lens;
  const float* sinks;  // may be null
  std::int64_t heads, kv_heads, head_dim, value_dim;
  float scale;        // of scores, that of the keys in it
  float value_scale;  // of an e4m3 cache
  float soft_cap;
  std::int64_t window;
};

// Of one request, KV heads [head_begin, head_end) and of each of them query rows [row_begin,
// row_end): row = query · group + head within the group. Segments are kAttentionSegment positions
// each.
struct AttentionItem {
  std::int32_t request;
  std::int32_t head_begin, head_end;
  std::int64_t row_begin, row_end;
  std::int64_t segment_begin, segment_end;
};

inline constexpr std::int64_t kAttentionRows = 48;       // of an item's heads together, at most
inline constexpr std::int64_t kAttentionTile = 64;       // positions
inline constexpr std::int64_t kAttentionSegment = 1024;  // positions

struct ConvolutionArgs {
  Rows out, x;         // [T, C]
  const void* weight;  // [C, width]
  Float weight_type;
  const void* bias;  // [C], may be null
  Float bias_type;
  void* state;  // [blocks, width − 1, C]
  Float state_type;
  std::int64_t state_stride, state_row_stride;
  std::int64_t channels, width;
  const std::int32_t *query_start, *state_read, *state_write;
  const std::int32_t* token_states;  // [T], may be null
  bool silu;
};

struct DeltaArgs {
  Rows out, q, k, v;  // [T, heads, dim]
  Rows a, b;          // [T, value heads]
  const float* a_log;
  const float* dt_bias;
  void* state;  // [blocks, value heads, key dim, value dim]
  Float state_type;
  std::int64_t state_stride, state_head_stride;
  std::int64_t key_heads, value_heads, key_dim, value_dim;
  const std::int32_t *query_start, *state_read, *state_write;
  const std::int32_t* token_states;  // [T], may be null
};

struct ScanLoopArgs {
  Rows out, x, b, c;  // [T, heads or groups, dim]
  Rows dt;            // [T, heads]
  const float *a_log, *dt_bias, *d_skip;
  void* state;  // [blocks, heads, head dim, state dim]
  Float state_type;
  std::int64_t state_stride, state_head_stride;
  std::int64_t heads, groups, head_dim, state_dim;
  const std::int32_t *query_start, *state_read, *state_write;
  const std::int32_t* token_states;  // [T], may be null
  float dt_min, dt_max;
};

inline constexpr std::int64_t kScanTokens = 16;  // per pass over a head's state

// A product with a long K: rows × columns whose sums wait in scratch, and bytes of a row of x at a
// time.
inline constexpr std::int64_t kDeepRows = 80, kDeepColumns = 60, kDeepBytes = 8192;

struct Kernels {
  // Rows [begin, end) each.
  void (*copy_rows)(const Rows& out, const Rows& x, std::int64_t width, std::int64_t begin,
                    std::int64_t end);
  // out = x / scale as e4m3.
  void (*quantize_rows)(const Rows& out, const Rows& x, float scale, std::int64_t width,
                        std::int64_t begin, std::int64_t end);
  void (*norm)(const NormArgs&, std::int64_t begin, std::int64_t end);
  void (*activation)(const ActArgs&, std::int64_t begin, std::int64_t end);
  void (*add)(const BinaryArgs&, std::int64_t begin, std::int64_t end);
  void (*scale)(const BinaryArgs&, std::int64_t begin, std::int64_t end);
  void (*sigmoid_gate)(const BinaryArgs&, std::int64_t begin, std::int64_t end);
  void (*rope)(const RopeArgs&, std::int64_t begin, std::int64_t end);
  // Rows [m_begin, m_end) × columns [n_begin, n_end). x in float; in Bf16 (null where the machine
  // has no instruction for it). scratch: kDeepRows · (kDeepColumns · 64 + 5 · k + 2 · kDeepBytes)
  // bytes, or what packs_bf16 says.
  void (*gemm_f32)(const GemmArgs&, std::int64_t m_begin, std::int64_t m_end, std::int64_t n_begin,
                   std::int64_t n_end, void* scratch);
  void (*gemm_bf16)(const GemmArgs&, std::int64_t m_begin, std::int64_t m_end, std::int64_t n_begin,
                    std::int64_t n_end, void* scratch);
  // gemm_bf16 packs x first: it wants many columns a call. Its scratch is 64 bytes for each
  // element of K, rounded up to 32.
  bool packs_bf16;
  // Rows [m_begin, m_end) × columns [n_begin, n_end); n_begin is a multiple of 16.
  void (*gemm_groups)(const GroupGemmArgs&, std::int64_t m_begin, std::int64_t m_end,
                      std::int64_t n_begin, std::int64_t n_end);
  // Rows [begin, end), for weights with this zero and scales of 32 or 16 columns.
  void (*quantize_groups)(const Rows& x, std::int64_t width, int zero, int group,
                          const GroupInputRows& out, std::int64_t begin, std::int64_t end);
  // out row 0 = Σ_j weights[j] · y[rows[j]], in the order of j; y is float [.., width].
  void (*combine)(const Rows& out, const float* y, std::int64_t width, const std::int32_t* rows,
                  const float* weights, std::int64_t count);
  // groups · 32 e2m1 values times 2^(scale − 127), as float or Bf16 (exact in both).
  void (*unpack_mxfp4)(const std::uint8_t* data, const std::uint8_t* scales, std::int64_t groups,
                       Float type, void* out);
  // e4m3 codes times scale, as float, or as Bf16 (exact) where scale is 1.
  void (*unpack_fp8)(const E4m3* codes, std::int64_t count, float scale, Float type, void* out);
  // scratch: kAttentionRows · (head_dim + kAttentionTile + 2 · (value_dim + 2)) + kAttentionTile ·
  // (head_dim + value_dim) floats. partial null: writes out. Else [segments, rows, value_dim +
  // 2] floats of the item: running maximum, sum, and weighted values, for attention_merge.
  void (*attention)(const PagedArgs&, const AttentionItem&, float* scratch, float* partial);
  void (*attention_merge)(const PagedArgs&, const AttentionItem&, float* partial);
  // An item's segments over several calls, with the bits of one: state, [rows, value_dim + 2] floats,
  // is what those before have left, and is written by the one that begins; the one that ends writes
  // out.
  void (*attention_carry)(const PagedArgs&, const AttentionItem&, float* scratch, float* state,
                          bool begins, bool ends);
  // Channels [begin, end) of one request.
  void (*conv)(const ConvolutionArgs&, std::int64_t request, std::int64_t begin, std::int64_t end);
  void (*delta_rule)(const DeltaArgs&, std::int64_t request, std::int64_t head);
  // scratch: (head_dim + 2 · kScanTokens) · (state_dim + 16) + 2 · kScanTokens · head_dim floats.
  void (*scan)(const ScanLoopArgs&, std::int64_t request, std::int64_t head, float* scratch);
  float (*row_max)(const float* x, std::int64_t n);
  // x ← exp((x − shift) · factor), returns the sum.
  float (*row_exp_sum)(float* x, std::int64_t n, float shift, float factor);
};

const Kernels& kernels_portable();
const Kernels& kernels_avx2();
const Kernels& kernels_avx512();
namespace avx512_vnni {
void gemm_groups(const GroupGemmArgs&, std::int64_t m_begin, std::int64_t m_end,
                 std::int64_t n_begin, std::int64_t n_end);
}
namespace avx512_bf16 {
void attention(const PagedArgs&, const AttentionItem&, float* scratch, float* partial);
void attention_carry(const PagedArgs&, const AttentionItem&, float* scratch, float* state,
                     bool begins, bool ends);
}
void gemm_avx512_bf16(const GemmArgs&, std::int64_t m_begin, std::int64_t m_end,
                      std::int64_t n_begin, std::int64_t n_end, void* scratch);
void gemm_amx_bf16(const GemmArgs&, std::int64_t m_begin, std::int64_t m_end, std::int64_t n_begin,
                   std::int64_t n_end, void* scratch);

}  // namespace quire::cpu
