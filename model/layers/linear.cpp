#include "model/layers/linear.h"

#include <algorithm>
#include <cassert>

#include "model/layers/fp8_matrix.h"

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
  if (shard.whole() || (split != LinearSplit::columns && split != LinearSplit::addends)) return {};
  check_divides(shard, "a matrix's width", columns);
  return share_of(shard, columns);
}

LinearPart own_part(const Shard& shard, LinearSplit split, LinearPart part) {
  if (shard.whole() || split != LinearSplit::rows) return part;
  check_divides({.rank = 0, .size = shard.size / part.copies}, part.name, part.wanted());
  const Range share = share_of(shard, part.wanted(), part.copies);
  part.pick = part.pick.empty()
                  ? rows_of(share)
                  : std::vector(part.pick.begin() + share.begin, part.pick.begin() + share.end);
  return part;
}

// Of what the rank has of the part; none where it is not fp8, or is not to stay so in a whole model
// either.
std::optional<Fp8Scales> own_scales(Weights& weights, const LinearPart& part, LinearSplit split,
                                    std::int64_t columns) {
  const std::string name = part.name + ".weight";
  auto whole = fp8_scales(weights, name, {part.rows, columns}, part.pick);
  if (!whole || weights.shard().whole() || split == LinearSplit::none) return whole;
  const Fp8Scales published = weights.fp8().scales(name, part.rows, columns);
  auto own = split == LinearSplit::rows
                 ? published.of_rows(own_part(weights.shard(), split, part).pick)
                 : whole->of_columns(share_of(weights.shard(), columns));
  if (own) return own;
  refuse_shares(weights.shard(),
                name + " is fp8 in blocks of " + std::to_string(kFp8Block) + " rows and columns");
}

void check_groups(const Shard& shard, const LinearPart& part, const GroupFormat& format,
                  std::int64_t columns, const Range& own) {
  const int unit = std::max<int>(kGroupTileColumns, format.group);
  if (own.begin % unit == 0 && own.size() % unit == 0) return;
  refuse_shares(shard, part.name + " is packed in groups of " + std::to_string(unit) +
                           " columns, of which it has " + std::to_string(columns));
}

std::vector<Run> runs_of(Weights& weights, const std::vector<LinearPart>& parts,
                         std::int64_t columns, LinearUse use, LinearSplit split) {
  std::vector<Run> runs;
  for (const LinearPart& whole : parts) {
    const LinearPart part = own_part(weights.shard(), split, whole);
    std::optional<Fp8Scales> scales;
    const auto groups = use == LinearUse::router
                            ? std::nullopt
                            : weights.groups_of(part.name + ".weight", {part.rows, columns});
    if (groups) {
      check_groups(weights.shard(), part, *groups, columns,
                   own_columns(weights.shard(), split, columns));
    }
    if (use != LinearUse::router && use != LinearUse::head)
      scales = own_scales(weights, whole, split, columns);
    const WeightFormat format = groups   ? weights.packed_format()
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
  if (is_packed(run.format)) {
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
  const Range own = own_columns(weights.shard(), split, columns);
  assert(own.size() == 0 || use == LinearUse::residual);
  bias = bias && (own.size() == 0 || adds_bias(weights.shard()));
  for (const Run& run : runs_of(weights, parts, columns, use, split)) {
    Piece piece{.weight = load_matrix(weights, run, columns, own),
                .bias = {},
                .begin = rows_,
                .end = rows_ + run.rows};
    if (bias) piece.bias = load_bias(weights, run, bias_dtype(weights, run.format, use));
    pieces_.push_back(piece);
    rows_ += run.rows;
  }
}

void Linear::operator()(TensorView out, const LayerInput& x, const ForwardContext& context) const {
  if (x.norm() != nullptr && fused({.out = out, .x = {}, .weight = {}}, x, context)) return;
  multiply(out, x.rows(context), context);
}

void Linear::leave(const LayerOutput& out, TensorView x, const ForwardContext& context) const {
  if (!out.sum().empty() &&
      fused({.out = out.sum(), .x = {}, .weight = {}, .adds = true}, x, context))
    return out.set_added();
  multiply(out.update(), x, context);
}

bool Linear::gated(TensorView out, const LayerInput& x, Activation activation,
                   const ForwardContext& context) const {
  const FusedLinearArgs args{.out = out, .x = {}, .weight = {}, .activation = activation};
  if (pieces_.size() != 1 || !pieces_.front().bias.empty() ||
      is_packed(pieces_.front().weight.format))
    return false;
  if (fused(args, x, context)) return true;
  return x.norm() != nullptr && fused(args, x.rows(context), context);
}

// Of what x is, with the norm that it still lacks; with the matrix.
bool Linear::fused(FusedLinearArgs args, const LayerInput& x, const ForwardContext& context) const {
  if (pieces_.size() != 1 || adds_up_) return false;
  args.weight = pieces_.front().weight;
  args.bias = pieces_.front().bias;
  if (x.norm() != nullptr) {
    args.x = x.sum();
    args.norm_weight = x.norm()->weight();
    args.norm_eps = x.norm()->eps();
    args.norm_offset = x.norm()->offset();
  } else {
    args.x = x.rows(context);
  }
  return context.ops.fused_linear(args, context.stream);
}

void Linear::multiply(TensorView out, TensorView x, const ForwardContext& context) const {
  for (const Piece& piece : pieces_) {
    const TensorView part = out.narrow(1, piece.begin, piece.end);
    if (piece.weight.format == WeightFormat::plain) {
      context.ops.linear(part, x, piece.weight.data, piece.bias, context.stream);
      continue;
    }
    const Workspace::Scope scope(context.workspace);
    const auto bytes =
        context.ops.traits().linear_workspace_bytes(x.extent(0), piece.weight, x.dtype());
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

TensorView all_columns(TensorView x, const Shard& shard, const ForwardContext& context) {
  const std::int64_t tokens = x.extent(0), columns = x.extent(1);
  const TensorView all = context.workspace.take(DType::f32, {tokens, shard.size * columns});
  const TensorView own = context.workspace.take(DType::f32, {tokens, columns});
  context.ops.copy(own, x, context.stream);
  if (context.collectives == nullptr)
    throw Failure(ErrorCode::internal, "a divided model runs without the other ranks");
  context.collectives->gather_columns(all, own, columns, context.stream);
  return all;
}

void Linear::look_up(TensorView out, TensorView ids, std::int64_t first,
                     const ForwardContext& context) const {
  context.ops.quantized_embedding(out, pieces_.front().weight, first, ids, context.stream);
}

}  // namespace quire
