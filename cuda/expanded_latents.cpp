// The rounds of latent attention of prompts.

#include <cassert>
#include <vector>

#include "cuda/gemm.h"
#include "cuda/kernels/expanded_attention.h"

namespace quire::cuda {

void mla_prompt_attention(Gemm& gemm, const MlaPromptArgs& args, SplitScratch scratch,
                          StreamRef stream) {
  const std::int64_t latent = args.up.extent(2), heads = args.up.extent(0);
  const LatentShape shape{.heads = heads,
                          .latent = latent,
                          .rope = args.cache.extent(2) - latent,
                          .nope = args.up.extent(1) - args.out.extent(2),
                          .value = args.out.extent(2),
                          .dtype = args.q.dtype()};
  assert(suits_expansion(shape) && args.up.contiguous());
  std::int64_t tokens = 0;
  for (const LatentPrompt& prompt : args.prompts)
    tokens = std::max<std::int64_t>(tokens, prompt.num_tokens);
  const LatentScratch at(tokens, shape);
  assert(args.workspace.bytes() >= at.bytes);
  const auto in_workspace = [&](std::size_t offset, DType dtype,
                                std::initializer_list<std::int64_t> extents) {
    return TensorView(static_cast<std::byte*>(args.workspace.data()) + offset, dtype, extents);
  };
  ExpandedRound round;
  round.out = args.out;
  round.q = args.q;
  round.rows = in_workspace(at.rows, shape.dtype, {kExpandedPositions, latent + shape.rope});
  round.heads = in_workspace(at.heads, shape.dtype, {kExpandedPositions, heads, kExpandedHead});
  round.states = in_workspace(at.states, DType::f32, {heads, tokens, kExpandedState});
  round.query_start = args.query_start;
  round.seq_lens = args.seq_lens;
  // An fp8 cache's codes are multiplied as they are.
  round.scale = args.scale * args.cache_scale;
  round.value_scale = args.cache_scale;
  const TensorView up = args.up.reshape({heads * kExpandedHead, latent});
  const TensorView expanded = round.heads.reshape({kExpandedPositions, heads * kExpandedHead});
  std::vector<LatentPiece> pieces;
  for_latent_rounds(args.prompts, kExpandedPositions, kMostPieces, pieces, [&] {
    round.pieces = pieces;
    const std::int64_t filled = pieces.back().slot + pieces.back().end - pieces.back().begin;
    gather_latents(round.rows, args.cache, args.block_table, pieces, stream);
    gemm.linear(expanded.rows(0, filled), round.rows.rows(0, filled).narrow(1, 0, latent), up, {},
                stream);
    if (expanded_wgmma_supports(round)) return expanded_wgmma(round, scratch, stream);
    expanded_mma(round, stream);
  });
}

}  // namespace quire::cuda
