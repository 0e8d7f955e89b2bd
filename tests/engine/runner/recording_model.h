#pragma once
// A model without weights that remembers what it was given. The token after id i at position p is
// (3 i + p) mod V: a wrong id or position shows in every token after it.

#include <vector>

#include "base/ids.h"
#include "engine/kv_plan/plan.h"
#include "model/forward_context.h"
#include "model/model.h"

namespace quire::test {

struct RecordedGroup {
  std::vector<std::vector<std::int32_t>> tables;  // by row
  std::vector<std::int64_t> slots;
  std::vector<std::int32_t> state_read;
  std::vector<std::int32_t> state_write;
};

struct RecordedStep {
  std::vector<std::int32_t> ids, positions, query_start, seq_lens;
  std::vector<RecordedGroup> groups;
  int max_query_len = 0;
  int max_seq_len = 0;
};

class RecordingModel final : public Model {
 public:
  static constexpr int kVocab = 97;
  static TokenId next(TokenId id, int position) { return (3 * id + position) % kVocab; }

  bool recording = true;
  TokenId damaged = -1;  // logits after this token are not numbers
  std::vector<RecordedStep> steps;
  std::vector<LayerCache> layers;
  int logits_rows = 0;  // of the last call of logits()

  int vocab_size() const override { return kVocab; }
  int hidden_size() const override { return 2; }
  DType dtype() const override { return DType::f32; }
  std::size_t weight_bytes() const override { return 0; }
  std::size_t workspace_bytes(int, int) const override { return 64; }
  std::vector<LayerKvSpec> kv_specs(const KvSpecOptions&) const override { return {}; }
  void bind_cache(std::span<const LayerCache> caches) override {
    layers.assign(caches.begin(), caches.end());
  }
  void embed(TensorView, TensorView, const ForwardContext&) override {}
  void forward(TensorView hidden, TensorView ids, const ForwardContext& context) override;
  void logits(TensorView logits, TensorView hidden, const ForwardContext& context) override;
};

// One group of full attention over two layers, blocks of 8 tokens as two kernel blocks of 4.
KvPlan attention_plan(int num_blocks, int max_model_len);
// The same, and a group of recurrent states.
KvPlan hybrid_plan(int num_blocks, int max_model_len, StateCacheMode mode, int state_block_size);

}  // namespace quire::test
