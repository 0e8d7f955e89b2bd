#include "model/layers/linear.h"

#include <algorithm>
#include <cassert>

#include "backend/dispatch.h"
#include "model/group_pack.h"
#include "model/layers/fp8_matrix.h"
#include "model/layers/measure_workspace.h"

namespace quire {

namespace {

// Parts that become one piece.
struct Run {
  WeightFormat format;
  std::vector<LinearPart> parts;
  std::vector<Fp8Scales> scales;  // of each part, in fp8
  GroupFormat group = {};         // of all parts, in groups
  std::int64_t rows = 0;
};

// A block of scales must not reach from one part into the next.
bool joins(const Run& run, WeightFormat format, const GroupFormat& group) {
  return run.format == format && run.group == group &&
         (format != WeightFormat::fp8_blocks || run.rows % kFp8Block == 0);
}

// What the rank has of the columns; empty: all.
Range own_columns(const Shard& shard, LinearSplit split, std::int64_t columns) {
  if (shard.whole() || split != LinearSplit::columns) return {};
  check_divides(shard, "a matrix's width", columns);
  return share_of(shard, columns);
}

std::vector<LinearPart> own_parts(const Shard& shard, LinearSplit split,
                                  std::vector<LinearPart> parts) {
  if (shard.whole() || split != LinearSplit::rows) return parts;
  for (LinearPart& part : parts) {
    check_divides({.rank = 0, .size = shard.size / part.copies}, part.name, part.wanted());
    const Range share = share_of(shard, part.wanted(), part.copies);
    part.pick = part.pick.empty() ? rows_of(share)
                                  : std::vector(part.pick.begin() + share.begin,
                                                part.pick.begin() + share.end);
  }
  return parts;
}

std::vector<Run> runs_of(Weights& weights, const std::vector<LinearPart>& parts,
                         std::int64_t columns, LinearUse use) {
  std::vector<Run> runs;
  for (const LinearPart& part : parts) {
    std::optional<Fp8Scales> scales;
    const auto groups = use == LinearUse::router ? std::nullopt
                                                 : weights.groups_of(part.name + ".weight");
    if (use != LinearUse::router && use != LinearUse::head) {
      scales = fp8_scales(weights, part.name + ".weight", {part.rows, columns}, part.pick);
    }
    const WeightFormat format = groups   ? WeightFormat::groups
                                : scales ? scales->format
                                         : WeightFormat::plain;
    const GroupFormat group = groups.value_or(GroupFormat{});
    if (runs.empty() || !joins(runs.back(), format, group)) runs.push_back({format, {}, {}, group});
    Run& run = runs.back();
    run.parts.push_back(part);
    run.rows += part.wanted();
    if (scales) run.scales.push_back(std::move(*scales));
  }
  return runs;
}

Weight load_matrix(Weights& weights, const Run& run, std::int64_t columns, const Range& own) {
  std::vector<Source> sources;
  for (const LinearPart& part : run.parts) {
    sources.push_back({.name = part.name + ".weight",
                       .shape = {part.rows, columns},
                       .pick = part.pick,
                       .columns = own});
  }
  if (own.size() > 0) columns = own.size();
  if (run.format == WeightFormat::plain) {
    return {.data = weights.load(sources, {run.rows, columns}, weights.dtype()), .scales = {}};
  }
  refuse_shard(weights.shard(), run.parts.front().name + " in a packed format");
  if (run.format == WeightFormat::groups) {
    return weights.load_groups(sources, {run.rows, columns}, run.group);
  }
  return load_fp8(weights, sources, {run.rows, columns}, run.scales);
}

// As cuBLASLt documents it: a bias has its output's dtype; beside fp8 it is bf16 for f32 outputs.
DType bias_dtype(const Weights& weights, WeightFormat format, LinearUse use) {
  if (use == LinearUse::inner || weights.dtype() == DType::f32) return weights.dtype();
  return is_fp8(format) ? DType::bf16 : DType::f32;
}

TensorView load_bias(Weights& weights, const Run& run, DType dtype) {
  std::vector<Source> biases;
  for (const LinearPart& part : run.parts) {
    // A bias is one row: picking rows of the matrix is picking columns of it.
    biases.push_back({.name = part.name + ".bias",
                      .shape = {part.rows},
                      .transposed = !part.pick.empty(),
                      .pick = part.pick});
  }
  return weights.load(biases, {run.rows}, dtype);
}

}  // namespace

Linear::Linear(Weights& weights, const std::vector<LinearPart>& parts, std::int64_t columns,
               bool bias, LinearUse use, LinearSplit split)
    : adds_up_(split == LinearSplit::columns && !weights.shard().whole()) {
  assert(!adds_up_ || use == LinearUse::residual);
  const Range own = own_columns(weights.shard(), split, columns);
  if (adds_up_ && weights.shard().rank > 0) bias = false;  // it is added once
  for (const Run& run :
       runs_of(weights, own_parts(weights.shard(), split, parts), columns, use)) {
    Piece piece{.weight = load_matrix(weights, run, columns, own),
                .bias = {},
                .begin = rows_,
                .end = rows_ + run.rows};
    if (bias) piece.bias = load_bias(weights, run, bias_dtype(weights, run.format, use));
    pieces_.push_back(piece);
    rows_ += run.rows;
  }
}

void Linear::operator()(TensorView out, TensorView x, const ForwardContext& context) const {
  for (const Piece& piece : pieces_) {
    const TensorView part = out.narrow(1, piece.begin, piece.end);
    if (piece.weight.format == WeightFormat::plain) {
      context.ops.linear(part, x, piece.weight.data, piece.bias, context.stream);
      continue;
    }
    const Workspace::Scope scope(context.workspace);
    const auto bytes = context.ops.traits().linear_workspace_bytes(x.extent(0), piece.weight, x.dtype());
    const TensorView workspace =
        context.workspace.take(DType::u8, {static_cast<std::int64_t>(bytes)});
    context.ops.quantized_linear(part, x, piece.weight, piece.bias, workspace, context.stream);
  }
  if (adds_up_) add_up(out, context);
}

void add_up(TensorView out, const ForwardContext& context) {
  if (context.collectives == nullptr)
    throw Failure(ErrorCode::internal, "a divided model runs without the other ranks");
  context.collectives->all_reduce(out, context.stream);
}

void Linear::look_up(TensorView out, TensorView ids) const {
  const Piece& piece = pieces_.front();
  const auto* const tiles = static_cast<const std::byte*>(piece.weight.data.data());
  // Where sizes are measured there is nothing to read.
  const void* const nowhere = unbacked(DType::i32, {1}).data();
  if (ids.data() == nowhere || tiles == nowhere) return;
  std::vector<float> row(static_cast<std::size_t>(out.extent(1)));
  dispatch_float(out.dtype(), [&]<class T>(Type<T>) {
    for (std::int64_t t = 0; t < ids.extent(0); ++t) {
      unpack_row(piece.weight.group, tiles, static_cast<const std::int32_t*>(ids.data())[t], row);
      T* const to = static_cast<T*>(out.data()) + t * out.stride(0);
      std::transform(row.begin(), row.end(), to, [](float value) { return static_cast<T>(value); });
    }
  });
}

}  // namespace quire
