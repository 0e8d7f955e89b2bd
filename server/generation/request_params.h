#pragma once
// A request's wishes and the model's defaults → what the engine samples by. How long the output may
// get is decided here; the rest is checked where it is submitted.

#include "base/result.h"
#include "engine/request/sampling_params.h"
#include "openapi/dto.h"
#include "server/text_pipeline.h"

namespace quire {

// What limits a request of this prompt on these engines.
struct PromptLimits {
  std::int64_t prompt_tokens = 0;
  std::int64_t max_model_len = 0;
  std::optional<std::int64_t> default_max_tokens{};  // unset: what the context leaves
  bool prompt_only = false;  // max_tokens may be 0; the engine makes one anyway
};

Result<SamplingParams> sampling_params(const openapi::GenerationRequest& request,
                                       const TextDefaults& defaults, const PromptLimits& limits);

}  // namespace quire
