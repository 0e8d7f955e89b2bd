#pragma once
// From the hidden states of a prompt to its vector: pooling in f32 on the host, then, where the
// model classifies, its head. Small matrices, once a request; they are the host's memory.

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "backend/dtype.h"
#include "model/config.h"
#include "model/load_format.h"
#include "model/pooling_config.h"

namespace quire {

class Pooler {
 public:
  // Throws Failure where the checkpoint has no head that the configuration asks for.
  Pooler(PoolingConfig config, const ModelConfig& model, const std::filesystem::path& model_dir,
         LoadFormat format);

  const PoolingConfig& config() const { return config_; }
  int size() const;  // numbers of a result
  std::size_t bytes() const;

  // Makes the answer of the pooled hidden state [hidden], without activation.
  std::vector<float> finish(std::span<const float> pooled) const;

 private:
  struct Dense {
    std::vector<float> weight;  // [rows, columns]
    std::vector<float> bias;    // [rows], or empty
    int rows = 0;
  };

  void load_head(const ModelConfig& model, const std::filesystem::path& model_dir);
  void load_token_head(const std::filesystem::path& model_dir);
  static std::vector<float> apply(const Dense& dense, std::span<const float> x);

  PoolingConfig config_;
  int hidden_size_;
  Dense hidden_layer_;  // with tanh; no rows: none
  Dense labels_;        // no rows: none
};

// Pools rows [num_tokens, hidden] of a dtype into one vector.
void pool_rows(PoolingType type, DType dtype, const void* rows, int num_tokens, int hidden_size,
               std::span<float> out);

}  // namespace quire
