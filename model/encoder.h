#pragma once
// A model whose tokens all see each other: it keeps nothing between steps, and a prompt is one step.
// It wants operators beside the usual ones (backend/encoder_ops.h).

#include <cstdint>
#include <span>

#include "model/config.h"
#include "model/model.h"

namespace quire {

class EncoderModel : public Model {
 public:
  // Which text of a pair each token of the next forward() is of, 0 or 1; without it all are of the
  // first. For a device whose memory is the host's.
  virtual void set_token_types(std::span<const std::int32_t> types) = 0;
};

// What config.json says of encoders alone.
struct EncoderConfig {
  int type_vocab_size = 0;  // texts of a pair that are told apart
  int first_position = 0;   // row of the position table for the first token
  bool exact_gelu = true;   // with erf; else the activation of ModelConfig
};

bool is_encoder(const ModelConfig& config);
// Of the same file; throws Failure as parse_model_config() does.
EncoderConfig read_encoder_config(const ModelConfig& config);

}  // namespace quire
