#pragma once
// What a layer must remember between steps: how many bytes a block of it takes, and how many blocks
// one request can need. The engine groups and counts these (engine/kv_plan/plan.h); no tensors
// here.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/dtype.h"
#include "model/shard.h"

namespace quire {

enum class KvKind : std::uint8_t {
  full,                // every token, for good
  sliding_window,      // the last `sliding_window` tokens
  chunked_local,       // the current chunk of `attention_chunk_size` tokens
  mla,                 // one latent vector per token
  sliding_window_mla,  // latent vectors of the last `sliding_window` tokens
  mamba,               // recurrent states (Mamba2, gated delta net)
  hidden_state,        // hidden states kept for a draft model
  cross_attention,     // encoder-decoder models: the plan refuses both of these
  encoder_only,
};

enum class KvQuant : std::uint8_t {
  none,
  fp8_per_tensor,
  int8_per_token_head,
  fp8_per_token_head,
  nvfp4,
};

// When a state layer keeps its state for later requests.
enum class StateCacheMode : std::uint8_t {
  none,      // never: one running state per request
  all,       // at every block boundary
  align,     // where a scheduler step ends at a block boundary
  adaptive,  // the same, and steps end where later requests will want to continue
};

// Whose recurrent state it is: the order of its convolution's channels (mamba2: x, B, C; delta_net:
// queries, keys, values), and of the two inner extents of its heads.
enum class StateForm : std::uint8_t { mamba2, delta_net };

// How an MLA layer packs a token, where it is not heads · head_size · dtype.
enum class MlaFormat : std::uint8_t { plain, fp8_ds_mla };
enum class MlaVersion : std::uint8_t { v3, deepseek_v4 };

struct StateTensor {
  std::vector<std::int64_t> shape = {};  // of one request's state, in this layer as loaded
  DType dtype = DType::f32;
  // Where ranks share the layer: which of the whole one's columns, its last extent, this rank has.
  // Empty: all, of its share of rows.
  std::vector<Range> columns = {};
  friend bool operator==(const StateTensor&, const StateTensor&) = default;
};

// Two layers remember "the same" iff all fields are equal. Which fields count depends on the kind.
struct KvSpec {
  KvKind kind = KvKind::full;
  int block_size = 1;  // tokens; the plan sets it, models leave 1

  // Attention and MLA
  int num_kv_heads = 0;  // of this layer as loaded: of one rank, where ranks share the heads
  int head_size = 0;
  int head_size_v = 0;  // 0: head_size
  DType dtype = DType::bf16;
  KvQuant quant = KvQuant::none;
  int sliding_window = 0;            // 0: none; a full layer may carry one (hybrid manager off)
  int attention_chunk_size = 0;      // 0: none; the same
  std::size_t page_size_padded = 0;  // 0: not padded; state layers too

  // MLA
  MlaFormat mla_format = MlaFormat::plain;
  MlaVersion mla_version = MlaVersion::v3;
  int compress_ratio = 1;     // tokens per stored token
  std::size_t alignment = 0;  // pages are rounded up to it; 0: no

  // State layers, in memory order
  StateForm state_form = StateForm::mamba2;
  std::vector<StateTensor> states = {};
  int num_speculative_blocks = 0;
  StateCacheMode state_cache_mode = StateCacheMode::none;

  friend bool operator==(const KvSpec&, const KvSpec&) = default;
};

// One layer of a model, in layer order.
struct LayerKvSpec {
  std::string layer;
  KvSpec spec;
  // What an fp8 cache's keys and values are multiplied by when they are read.
  float key_scale = 1.f, value_scale = 1.f;
};

// What a model's specs depend on besides its layers.
struct KvSpecOptions {
  DType cache_dtype = DType::bf16;                  // of keys and values
  DType conv_state_dtype = DType::bf16;             // of recurrent layers' convolution rows
  std::optional<DType> recurrent_state_dtype = {};  // unset: the model's own choice
  int num_speculative_tokens = 0;                   // extra convolution rows
};

// The longest a request and a step can get.
struct KvLimits {
  std::int64_t max_model_len = 0;
  std::int64_t max_num_batched_tokens = 0;
  int context_parallel = 1;  // ranks that share a sequence (decode · prefill)
  StateCacheMode state_cache_mode = StateCacheMode::none;
};

// Bytes of one block of the layer: what it stores, and what it occupies once padded or aligned.
std::size_t unpadded_page_bytes(const KvSpec& spec);
std::size_t page_bytes(const KvSpec& spec);

// Tokens that a block stores (fewer than block_size where an MLA layer compresses).
int storage_block_size(const KvSpec& spec);

// Most blocks that one request can hold at a time.
std::int64_t max_blocks_per_request(const KvSpec& spec, const KvLimits& limits);

struct MergedSpec {
  std::optional<KvSpec> spec = {};  // empty: the layers cannot share a block table as one spec
  bool window_conflict = false;     // only because of two different windows or chunks
};

// One spec for layers that are stored alike; layers must not be empty.
MergedSpec merge(std::span<const KvSpec> layers);

bool is_attention(KvKind kind);        // keeps keys and values (or latents) per token
bool is_windowed(const KvSpec& spec);  // frees blocks while the request runs

// "full_attention", "sliding_window", … as KV events and /metrics spell it.
std::string_view kind_name(KvKind kind);
std::string_view name_of(StateCacheMode mode);
// The running state moves from block to block: a request holds the newest and the one before.
bool moves_state(StateCacheMode mode);

}  // namespace quire
