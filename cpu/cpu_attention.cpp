// The cut of paged attention into items for the threads.

#include <algorithm>
#include <cassert>

#include "cpu/operators.h"

namespace quire::cpu {
namespace {

constexpr std::int64_t kMacsPerOperation = 8;  // in the measure of for_rows()

template <class T>
std::int64_t count_of(const std::vector<T>& list) {
  return static_cast<std::int64_t>(list.size());
}

void attend_whole(Context& on, const PagedArgs& args, std::int64_t work) {
  const std::size_t scratch_bytes = attention_scratch_bytes(args);
  const std::int64_t count = count_of(on.attention.items);
  on.for_rows(count, work / count, [&](std::int64_t begin, std::int64_t end) {
    auto* const scratch = static_cast<float*>(thread_scratch(scratch_bytes));
    for (std::int64_t i = begin; i < end; ++i) {
      on.kernels.attention(args, on.attention.items[static_cast<std::size_t>(i)], scratch, nullptr);
    }
  });
}

// Each segment on its own, then the merge: the same sums in the same order as without the split.
void attend_split(Context& on, const PagedArgs& args, std::int64_t work) {
  on.attention.parts.clear();
  std::int64_t floats = 0;
  for (std::size_t i = 0; i < on.attention.items.size(); ++i) {
    const AttentionItem& item = on.attention.items[i];
    const std::int64_t rows = (item.row_end - item.row_begin) * (item.head_end - item.head_begin);
    for (std::int64_t s = item.segment_begin; s < item.segment_end; ++s) {
      on.attention.parts.push_back({i, s, floats});
      floats += rows * (args.value_dim + 2);
    }
  }
  if (on.attention.parts.size() == on.attention.items.size()) return attend_whole(on, args, work);
  if (on.attention.partials.size() < static_cast<std::size_t>(floats)) {
    on.attention.partials.resize(static_cast<std::size_t>(floats));
  }
  const std::size_t scratch_bytes = attention_scratch_bytes(args);
  const std::int64_t count = count_of(on.attention.parts);
  on.for_rows(count, work / count, [&](std::int64_t begin, std::int64_t end) {
    auto* const scratch = static_cast<float*>(thread_scratch(scratch_bytes));
    for (std::int64_t i = begin; i < end; ++i) {
      const AttentionPart& part = on.attention.parts[static_cast<std::size_t>(i)];
      AttentionItem item = on.attention.items[part.item];
      item.segment_begin = part.segment;
      item.segment_end = part.segment + 1;
      on.kernels.attention(args, item, scratch, on.attention.partials.data() + part.offset);
    }
  });
  for (const AttentionPart& part : on.attention.parts) {
    const AttentionItem& item = on.attention.items[part.item];
    if (part.segment != item.segment_begin) continue;
    on.kernels.attention_merge(args, item, on.attention.partials.data() + part.offset);
  }
}

// Decoding requests take several heads an item, whose keys lie side by side in memory; prefilling
// ones take a part of one head's rows. Long contexts are split where there are few items, and by
// positions rather than by heads, so that memory is read in order.
void attend(Context& on, const PagedArgs& args, std::int64_t requests) {
  const std::int64_t group = args.heads / args.kv_heads, wanted = 4 * on.pool.threads();
  on.attention.items.clear();
  std::int64_t work = 0;  // pairs of query row and position
  for (std::int64_t r = 0; r < requests; ++r) {
    const std::int64_t rows = (args.query_start[r + 1] - args.query_start[r]) * group;
    if (rows == 0) continue;
    const std::int64_t cached = args.seq_lens[r] - rows / group;
    const std::int64_t seen =
        args.window > 0 ? std::min<std::int64_t>(args.window, args.seq_lens[r]) : args.seq_lens[r];
    const std::int64_t segments = std::max<std::int64_t>(1, seen / kAttentionSegment);
    const std::int64_t shares = std::max<std::int64_t>(1, wanted / (requests * segments));
    const std::int64_t heads = std::clamp<std::int64_t>(
        std::min(kAttentionRows / rows, args.kv_heads / shares), 1, args.kv_heads);
    for (std::int64_t h = 0; h < args.kv_heads; h += heads) {
      for (std::int64_t begin = 0; begin < rows; begin += kAttentionRows) {
        const std::int64_t end = std::min(rows, begin + kAttentionRows);
        const std::int64_t first = cached + begin / group, last = cached + (end - 1) / group;
        const std::int64_t from =
            args.window > 0 ? std::max<std::int64_t>(0, first + 1 - args.window) : 0;
        const std::int64_t head_end = std::min(args.kv_heads, h + heads);
        on.attention.items.push_back({static_cast<std::int32_t>(r), static_cast<std::int32_t>(h),
                                      static_cast<std::int32_t>(head_end), begin, end,
                                      from / kAttentionSegment, last / kAttentionSegment + 1});
        work += (head_end - h) * (end - begin) * (last + 1 - from);
      }
    }
  }
  if (on.attention.items.empty()) return;
  const std::int64_t item_work = work * (args.head_dim + args.value_dim) / kMacsPerOperation;
  if (count_of(on.attention.items) < wanted) {
    attend_split(on, args, item_work);
  } else {
    attend_whole(on, args, item_work);
  }
}

}  // namespace

PagedArgs paged_args(TensorView out, TensorView q, TensorView k_cache, TensorView v_cache,
                     TensorView block_table, TensorView query_start, TensorView seq_lens) {
  assert(k_cache.rank() == 4 && v_cache.rank() == 4 && k_cache.dtype() == v_cache.dtype());
  assert(out.extent(0) == q.extent(0) && out.extent(1) == q.extent(1));
  assert(q.extent(2) == k_cache.extent(3) && out.extent(2) == v_cache.extent(3));
  assert(block_table.stride(1) == 1 || block_table.extent(1) == 1);
  return {.out = rows_of(out),
          .q = rows_of(q),
          .k_cache = k_cache.data(),
          .v_cache = v_cache.data(),
          .cache_type = cache_float_of(k_cache.dtype()),
          .k_stride = {k_cache.stride(0), k_cache.stride(1), k_cache.stride(2)},
          .v_stride = {v_cache.stride(0), v_cache.stride(1), v_cache.stride(2)},
          .block_table = block_table.as<std::int32_t, 2>().data,
          .table_stride = block_table.stride(0),
          .block_size = k_cache.extent(1),
          .query_start = query_start.as<std::int32_t, 1>().data,
          .seq_lens = seq_lens.as<std::int32_t, 1>().data,
          .sinks = nullptr,
          .heads = q.extent(1),
          .kv_heads = k_cache.extent(2),
          .head_dim = q.extent(2),
          .value_dim = out.extent(2),
          .scale = 1.f,
          .value_scale = 1.f,
          .soft_cap = 0.f,
          .window = 0};
}

std::size_t attention_scratch_bytes(const PagedArgs& args) {
  constexpr std::int64_t kRows = kAttentionRows, kTile = kAttentionTile;
  const std::int64_t floats = kRows * (args.head_dim + kTile + 2 * (args.value_dim + 2)) +
                              kTile * (args.head_dim + args.value_dim);
  return static_cast<std::size_t>(floats) * sizeof(float);
}

void paged_attention(Context& on, const AttentionArgs& args) {
  PagedArgs paged = paged_args(args.out, args.q, args.k_cache, args.v_cache, args.block_table,
                               args.query_start, args.seq_lens);
  assert(paged.heads % paged.kv_heads == 0);
  if (!args.sinks.empty()) paged.sinks = args.sinks.as<float, 1>().data;
  paged.scale = args.scale * args.cache_scale.k;
  paged.value_scale = args.cache_scale.v;
  paged.soft_cap = args.soft_cap;
  paged.window = args.window;
  attend(on, paged, args.seq_lens.extent(0));
}

// The latent is key and value at once: one KV head whose values are the front of its keys.
void mla_attention(Context& on, const MlaArgs& args) {
  assert(args.cache.rank() == 3);
  const std::int64_t width = args.cache.extent(2);
  const TensorView cache = args.cache.split_last(width);
  PagedArgs paged = paged_args(args.out, args.q, cache, cache.narrow(3, 0, args.out.extent(2)),
                               args.block_table, args.query_start, args.seq_lens);
  paged.scale = args.scale * args.cache_scale;
  paged.value_scale = args.cache_scale;
  attend(on, paged, args.seq_lens.extent(0));
}

}  // namespace quire::cpu
