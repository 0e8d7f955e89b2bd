#pragma once
// A draft model: a few layers that propose tokens from what the target has computed. It has keys
// and values of its own, beside the target's and in the same blocks; where its checkpoint shares
// the target's embedding or head, it asks the target for them. No requests in here.
//
// Position p of a request sees the token at p + 1 and a state: that of the target at p, or the
// draft's own of the step before. What comes out stands for p + 1: its logits propose the token at
// p + 2.

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "backend/tensor.h"
#include "model/forward_context.h"
#include "model/kv_spec.h"
#include "model/last_tokens.h"
#include "model/model.h"

namespace quire {

class DraftModel {
 public:
  virtual ~DraftModel() = default;

  virtual int vocab_size() const = 0;   // of its logits
  virtual int hidden_size() const = 0;  // of its states
  virtual int target_width() const = 0;  // the target's hidden_size
  virtual DType dtype() const = 0;
  // Layers of the target, ascending, whose input streams the draft reads side by side. Empty: it
  // reads the output of the target's final norm.
  virtual std::span<const int> stream_layers() const = 0;
  virtual std::size_t weight_bytes() const = 0;
  virtual std::size_t mapped_bytes() const = 0;  // of them, what stays in mapped files
  // Scratch of combine(), forward() or logits(), whichever takes most.
  virtual std::size_t workspace_bytes(int num_tokens, int num_rows) const = 0;

  // As Model's; no layer is called as one of the target's.
  virtual std::vector<LayerKvSpec> kv_specs(const KvSpecOptions& options) const = 0;
  virtual void bind_cache(std::span<const LayerCache> layers) = 0;

  // states [T, hidden_size] of what the target gave, [T, features].
  virtual void combine(TensorView states, TensorView features, const ForwardContext& context) = 0;
  // out [T, hidden_size] = the states of the next step. ids i32 [T]: the token after each position;
  // starts: which of the T are at position 0. Unless `last` is empty, out [R, hidden_size] of
  // these.
  virtual void forward(TensorView out, TensorView ids, TensorView states,
                       std::span<const int> starts, const LastTokens& last,
                       const ForwardContext& context) = 0;
  // logits f32 [S, vocab_size] of rows that forward() gave.
  virtual void logits(TensorView logits, TensorView states, const ForwardContext& context) = 0;
  // i32 [vocab_size, 1]: the target's id of each of the draft's. Empty: they are the same.
  virtual TensorView target_ids() const = 0;
};

}  // namespace quire
