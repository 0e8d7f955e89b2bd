#pragma once
// What every operator is given beside its tensors: threads, this machine's kernels, and scratch
// that grows to the largest step seen and stays. One thread at a time uses a context.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/latent_rounds.h"
#include "backend/ops.h"
#include "cpu/kernels/kernels.h"
#include "cpu/thread_pool.h"

namespace quire::cpu {

// Where a segment of an attention item leaves its sums.
struct AttentionPart {
  std::size_t item;
  std::int64_t segment, offset;  // offset into partials
};

struct AttentionScratch {
  std::vector<AttentionItem> items;
  std::vector<AttentionPart> parts;
  std::vector<float> partials;  // softmax states of split attention
};

struct LatentItem {
  const LatentPiece* piece;
  AttentionItem rows;
};
struct LatentScratch {
  std::vector<LatentPiece> pieces;
  std::vector<LatentItem> items;
  std::vector<std::int32_t> pages;  // a block table
};

// Memory of a GroupInputRows.
struct GroupInput {
  std::vector<std::int8_t> codes;
  std::vector<float> scales, mins;
  std::vector<std::int32_t> starts;

  GroupInputRows rows() { return {codes.data(), scales.data(), starts.data(), mins.data()}; }
};

struct Context {
  // body(begin, end) over rows that cost about work_per_row element operations each.
  template <class F>
  void for_rows(std::int64_t rows, std::int64_t work_per_row, F&& body) {
    constexpr std::int64_t kWorthSharing = 16 << 10;
    pool.parallel_for(rows, kWorthSharing / (work_per_row + 1) + 1, body);
  }

  ThreadPool pool;
  Kernels kernels;
  std::vector<std::byte> product_input = {};  // x in the type that a product wants
  GroupInput group_input = {};
  AttentionScratch attention = {};
  LatentScratch latents = {};
};

// float32, bf16 or f16; anything else throws.
Float float_of(DType dtype);
Act act_of(Activation activation);
// [rows, width] or [outer, inner, width] with adjacent elements in a row.
Rows rows_of(TensorView view);
// This thread's scratch, at least bytes long, 64-byte aligned; valid until the next call.
void* thread_scratch(std::size_t bytes);

}  // namespace quire::cpu
