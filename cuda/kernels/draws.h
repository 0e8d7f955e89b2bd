#pragma once
// From logits to tokens, and what is told of them; shapes as in backend/ops.h. The scratch holds
// what a first pass over the logits leaves behind (row_summary.cuh).

#include "backend/draft_ops.h"
#include "cuda/kernels/attention.h"

namespace quire::cuda {

// sampling.cu
void sample(TensorView tokens, TensorView logits, const SamplingArgs& args, SplitScratch scratch,
            StreamRef stream);

// draft_draws.cu
void draw_drafts(TensorView tokens, TensorView shares, TensorView logits, TensorView places,
                 const SamplingArgs& args, StreamRef stream);
void verify_drafts(TensorView logits, const VerifyArgs& args, StreamRef stream);

// held_drafts.cu
void settle_drafts(const HeldArgs& args, StreamRef stream);
void lag_numbers(TensorView numbers, TensorView at, TensorView line, TensorView lost,
                 StreamRef stream);

// log_probs.cu
void log_probs(TensorView top_ids, TensorView top_values, TensorView token_value,
               TensorView token_rank, TensorView logits, TensorView tokens, SplitScratch scratch,
               StreamRef stream);

}  // namespace quire::cuda
