#pragma once
// Runs a model without an engine: caches by hand, blocks in random order, any mix of requests and
// chunks in a step.

#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "backend/device.h"
#include "backend/workspace.h"
#include "base/ids.h"
#include "model/forward_context.h"
#include "model/registry.h"

namespace quire {

struct DirectOptions {
  DType dtype = DType::f32;
  std::optional<DType> cache_dtype = {};  // of keys and values; unset: dtype
  int block_size = 16;                    // tokens
  int kernel_block_size = 8;              // tokens
  int num_blocks = 64;
  std::size_t page_padding = 0;  // bytes after each attention page
  bool move_state = false;       // write the state to another block at every step
  int max_step_tokens = 512;
  bool same_bits = false;  // operators know nothing of a step's rows: RunnerOptions::same_bits
  unsigned seed = 1;
};

class DirectRunner {
 public:
  DirectRunner(Model& model, Device& device, Ops& ops, const DirectOptions& options);

  struct Work {
    int request;
    std::vector<TokenId> tokens;
  };

  // A new request whose whole prompt has this many tokens.
  int add_request(int num_prompt_tokens);
  void finish(int request);
  // Logits of every token, request after request: [tokens, vocab].
  std::vector<float> step(const std::vector<Work>& work);

  int vocab_size() const { return model_.vocab_size(); }

 private:
  struct Request {
    int offset = 0;
    int num_tokens = 0;
    std::vector<BlockId> blocks;
    BlockId state = -1;
  };
  struct StepArrays;

  BlockId take_block();
  void add_row(const Work& work, StepArrays& arrays);
  void grow(Request& request, int tokens);

  Model& model_;
  Device& device_;
  Ops& ops_;
  DirectOptions options_;
  std::vector<Buffer> pools_;
  Workspace workspace_;
  std::vector<BlockId> free_;
  std::vector<Request> requests_;
  std::mt19937 random_;
};

}  // namespace quire
