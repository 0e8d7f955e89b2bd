#pragma once
// Latent attention of prompts, expanded (MlaPromptArgs): rows of the cache are gathered, a product
// makes keys and values of them, and these are attended to, a round of pieces at a time.

#include "backend/latent_rounds.h"
#include "cuda/kernels/attention.h"
#include "cuda/latent_scratch.h"

namespace quire::cuda {

class Gemm;

// Of a round, at most: they are parameters of its launches.
constexpr int kMostPieces = 64;

// Of a prompt whose positions come in several pieces, what a row has seen so far is in its state,
// where the next piece goes on. Query heads have keys and values of their own.
struct ExpandedRound {
  TensorView out, q;                 // as in MlaPromptArgs
  TensorView rows;                   // [kExpandedPositions, latent + rope], of an fp8 cache codes
  TensorView heads;                  // [kExpandedPositions, heads, nope + value]
  TensorView states;                 // f32 [heads, tokens of a prompt, kExpandedState]
  TensorView query_start, seq_lens;  // as in MlaPromptArgs
  std::span<const LatentPiece> pieces;  // in ascending slots
  float scale = 1.f, value_scale = 1.f;
};

// latent_rows.cu: the pieces' rows of the cache to their slots.
void gather_latents(TensorView rows, TensorView cache, TensorView block_table,
                    std::span<const LatentPiece> pieces, StreamRef stream);

// expanded_mma.cu
void expanded_mma(const ExpandedRound& round, StreamRef stream);
// expanded_wgmma.cu: on Hopper's warpgroups, where the driver makes maps.
bool expanded_wgmma_supports(const ExpandedRound& round);
void expanded_wgmma(const ExpandedRound& round, SplitScratch scratch, StreamRef stream);

// expanded_latents.cpp: all rounds. Only of shapes with suits_expansion().
void mla_prompt_attention(Gemm& gemm, const MlaPromptArgs& args, SplitScratch scratch,
                          StreamRef stream);

}  // namespace quire::cuda
