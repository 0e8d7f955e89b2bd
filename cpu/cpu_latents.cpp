// Latent attention of prompts: rows of the cache become keys and values of each head, so many
// positions at a time as the workspace holds, and are attended to there as paged ones are.

#include <algorithm>
#include <cassert>

#include "cpu/latent_workspace.h"
#include "cpu/operators.h"
#include "cpu/product.h"

namespace quire::cpu {
namespace {

constexpr std::int64_t kTaskPositions = 128;   // of one head, expanded by one thread
constexpr std::int64_t kMacsPerOperation = 8;  // in the measure of for_rows()

LatentShape shape_of(const MlaPromptArgs& args) {
  const std::int64_t latent = args.up.extent(2), value = args.out.extent(2);
  return {.heads = args.q.extent(1),
          .latent = latent,
          .rope = args.cache.extent(2) - latent,
          .nope = args.up.extent(1) - value,
          .value = value,
          .dtype = args.q.dtype()};
}

class Prompts {
 public:
  Prompts(Context& on, const MlaPromptArgs& args)
      : on_(on),
        args_(args),
        shape_(shape_of(args)),
        at_(tokens_of(args), shape_),
        matrix_(matrix_of(args.up.rows(0, 1).reshape({args.up.extent(1), shape_.latent}))),
        type_(product_type(on, shape_.dtype, matrix_)) {
    assert(args.q.extent(2) == key_width() && args.up.contiguous());
    assert(args.workspace.bytes() >= at_.bytes);
    scales_rows_ = type_ == Float::f32 && args.cache.dtype() == DType::fp8_e4m3;
    set_pages();
  }

  void run() {
    for_latent_rounds(args_.prompts, static_cast<std::int32_t>(kLatentPiece), args_.prompts.size(),
                      on_.latents.pieces, [&] {
                        const LatentPiece& last = on_.latents.pieces.back();
                        filled_ = last.slot + last.end - last.begin;
                        gather();
                        expand();
                        attend();
                      });
  }

 private:
  static std::int64_t tokens_of(const MlaPromptArgs& args) {
    std::int64_t tokens = 0;
    for (const LatentPrompt& prompt : args.prompts)
      tokens = std::max<std::int64_t>(tokens, prompt.num_tokens);
    return tokens;
  }

  std::int64_t key_width() const { return shape_.nope + shape_.rope; }
  std::int64_t row_width() const { return shape_.latent + shape_.rope; }
  std::int64_t row_bytes() const { return row_width() * (type_ == Float::f32 ? 4 : 2); }
  std::byte* at(std::size_t offset) const {
    return static_cast<std::byte*>(args_.workspace.data()) + offset;
  }
  TensorView keys() const {
    return {at(at_.keys), shape_.dtype, {shape_.heads, kLatentPiece, key_width()}};
  }
  TensorView values() const {
    return {at(at_.values), shape_.dtype, {shape_.heads, kLatentPiece, shape_.value}};
  }

  // All pieces are page 0 of a cache of their own.
  void set_pages() {
    std::int64_t longest = 0;
    for (const LatentPrompt& prompt : args_.prompts)
      longest = std::max<std::int64_t>(longest, prompt.seq_len());
    on_.latents.pages.assign(static_cast<std::size_t>(longest / kLatentPiece + 1), 0);
  }

  // The pieces' rows of the cache, in the type of the product.
  void gather() {
    for (const LatentPiece& piece : on_.latents.pieces) {
      on_.for_rows(piece.end - piece.begin, row_width(), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i)
          gather_row(piece, piece.begin + i, piece.slot + i);
      });
    }
  }

  void gather_row(const LatentPiece& piece, std::int64_t position, std::int64_t slot) {
    const std::int64_t size = args_.cache.extent(1);
    const auto table = args_.block_table.as<std::int32_t, 2>();
    const std::int64_t block = table(piece.prompt.request, position / size);
    const std::int64_t element =
        block * args_.cache.stride(0) + position % size * args_.cache.stride(1);
    std::byte* const from = static_cast<std::byte*>(args_.cache.data()) +
                            element * static_cast<std::int64_t>(size_of(args_.cache.dtype()));
    std::byte* const to = at(at_.rows) + slot * row_bytes();
    const Float type = cache_float_of(args_.cache.dtype());
    if (type == Float::e4m3)
      return on_.kernels.unpack_fp8(reinterpret_cast<const E4m3*>(from), row_width(),
                                    scales_rows_ ? args_.cache_scale : 1.f, type_, to);
    on_.kernels.copy_rows({.data = to, .type = type_}, {.data = from, .type = type}, row_width(), 0,
                          1);
  }

  void expand() {
    const std::int64_t parts = (filled_ + kTaskPositions - 1) / kTaskPositions;
    const std::int64_t work =
        kTaskPositions * shape_.latent * (shape_.nope + shape_.value) / kMacsPerOperation;
    on_.for_rows(shape_.heads * parts, work, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t from = i % parts * kTaskPositions;
        expand_head(i / parts, from, std::min(filled_, from + kTaskPositions));
      }
    });
  }

  // Slots [begin, end) of one head.
  void expand_head(std::int64_t head, std::int64_t begin, std::int64_t end) {
    const TensorView up =
        args_.up.rows(head, head + 1).reshape({args_.up.extent(1), shape_.latent});
    const auto head_of = [&](TensorView all) {
      return all.rows(head, head + 1).reshape({all.extent(1), all.extent(2)});
    };
    const TensorView keys = head_of(this->keys());
    project(keys, up.rows(0, shape_.nope), begin, end);
    project(head_of(values()), up.rows(shape_.nope, up.extent(0)), begin, end);
    const Rows rotated{.data = at(at_.rows) + shape_.latent * (row_bytes() / row_width()),
                       .type = type_,
                       .stride = row_width()};
    on_.kernels.copy_rows(rows_of(keys.narrow(1, shape_.nope, key_width())), rotated, shape_.rope,
                          begin, end);
  }

  void project(TensorView out, TensorView weight, std::int64_t begin, std::int64_t end) {
    const Matrix matrix = matrix_of(weight);
    const GemmArgs gemm{.w = matrix.data,
                        .w_type = matrix.type,
                        .w_stride = matrix.stride,
                        .x = at(at_.rows),
                        .x_stride = row_width(),
                        .out = out.data(),
                        .out_type = float_of(out.dtype()),
                        .out_stride = out.stride(0),
                        .bias = nullptr,
                        .bias_type = Float::f32,
                        .k = shape_.latent};
    product(on_, gemm, matrix, type_, begin, end, 0, weight.extent(0));
  }

  PagedArgs paged(const LatentPiece& piece) const {
    const auto of_slot = [&](TensorView all) {
      return TensorView(all.narrow(1, piece.slot, piece.slot + 1).data(), all.dtype(),
                        {1, kLatentPiece, all.extent(0), all.extent(2)})
          .with_strides({0, all.stride(1), all.stride(0), 1});
    };
    const TensorView pages(on_.latents.pages.data(), DType::i32,
                           {1, static_cast<std::int64_t>(on_.latents.pages.size())});
    PagedArgs paged = paged_args(args_.out, args_.q, of_slot(keys()), of_slot(values()), pages,
                                 args_.query_start, args_.seq_lens);
    paged.table_stride = 0;  // one row for all requests
    const float rest = scales_rows_ ? 1.f : args_.cache_scale;
    paged.scale = args_.scale * rest;
    paged.value_scale = rest;
    return paged;
  }

  void attend() {
    on_.latents.items.clear();
    std::int64_t work = 0;  // pairs of query row and position
    for (const LatentPiece& piece : on_.latents.pieces) {
      const LatentPrompt& prompt = piece.prompt;
      for (std::int32_t h = 0; h < shape_.heads; ++h) {
        for (std::int64_t row = 0; row < prompt.num_tokens; row += kAttentionRows) {
          const std::int64_t end = std::min<std::int64_t>(prompt.num_tokens, row + kAttentionRows);
          const std::int64_t seen = std::min<std::int64_t>(piece.end, prompt.num_cached + end) - piece.begin;
          if (seen <= 0) continue;
          const std::int64_t segment = piece.begin / kAttentionSegment;
          on_.latents.items.push_back(
              {&piece, {prompt.request, h, h + 1, row, end, segment, segment + 1}});
          work += (end - row) * seen;
        }
      }
    }
    const auto count = static_cast<std::int64_t>(on_.latents.items.size());
    const std::int64_t item_work = work * (key_width() + shape_.value) / kMacsPerOperation / count;
    const std::size_t scratch_bytes = attention_scratch_bytes(paged(on_.latents.pieces.front()));
    on_.for_rows(count, item_work, [&](std::int64_t begin, std::int64_t end) {
      auto* const scratch = static_cast<float*>(thread_scratch(scratch_bytes));
      for (std::int64_t i = begin; i < end; ++i)
        attend_item(on_.latents.items[static_cast<std::size_t>(i)], scratch);
    });
  }

  void attend_item(const LatentItem& item, float* scratch) const {
    const LatentPiece& piece = *item.piece;
    const LatentPrompt& prompt = piece.prompt;
    const AttentionItem& rows = item.rows;
    if (piece.is_whole()) return on_.kernels.attention(paged(piece), rows, scratch, nullptr);
    const std::int64_t state = rows.head_begin * std::int64_t{prompt.num_tokens} + rows.row_begin;
    on_.kernels.attention_carry(
        paged(piece), rows, scratch,
        reinterpret_cast<float*>(at(at_.states)) + state * (shape_.value + 2), piece.begin == 0,
        prompt.num_cached + rows.row_end <= piece.end);
  }

  Context& on_;
  const MlaPromptArgs& args_;
  const LatentShape shape_;
  const LatentWorkspace at_;
  const Matrix matrix_;  // of the first head
  const Float type_;     // of products
  bool scales_rows_;     // rows of an fp8 cache are what they stand for; else they are its codes
  std::int64_t filled_ = 0;  // slots of the round
};

}  // namespace

void mla_prompt_attention(Context& on, const MlaPromptArgs& args) { Prompts(on, args).run(); }

}  // namespace quire::cpu
