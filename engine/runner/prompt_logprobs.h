#pragma once
// Log-probabilities of prompt tokens, for requests that ask for them: gathered chunk by chunk while
// the prompt is computed. Rare and slow: each chunk waits for the device.

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "backend/ops.h"
#include "base/ids.h"
#include "engine/request/request.h"

namespace quire {

// At one prompt position: the token that is there, and the k that were more likely or as likely.
struct PromptPosition {
  float chosen = 0;
  int rank = 0;
  std::vector<TokenId> top_ids = {};
  std::vector<float> top_values = {};
};

class PromptLogprobs {
 public:
  // Chunks of max_rows logits at most.
  PromptLogprobs(Device& device, Ops& ops, int max_rows, int vocab_size);

  // Prompt tokens whose probability this chunk of the request tells; 0: it does not ask.
  static int num_wanted(const Request& request, int num_computed, int num_tokens);

  // logits f32 [n, V] at positions [position, position + n) speak about the tokens after them.
  void add(const Request& request, int position, TensorView logits, StreamRef stream);

  // Of prompt tokens 1, 2, …; forgets them.
  std::vector<PromptPosition> take(RequestId id);

 private:
  Device& device_;
  Ops& ops_;
  Buffer chosen_;   // i32 [n]
  Buffer results_;  // LogprobArrays
  std::unordered_map<RequestId, std::vector<PromptPosition>> positions_;
};

}  // namespace quire
