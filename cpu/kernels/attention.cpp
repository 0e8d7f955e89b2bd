// Paged attention with an online softmax. Positions go by in tiles of kAttentionTile and segments
// of kAttentionSegment counted from position 0, each segment has a softmax state of its own, and
// states are merged in order: what a query gets depends on its position alone, not on the batch,
// the chunk or who computed which segment.

#include "cpu/kernels/attention_tile.h"
#include "cpu/kernels/isa.h"

namespace quire::cpu::QUIRE_CPU_ISA {
namespace {

// Per row: maximum, sum and weighted values of one segment.
struct Partial {
  float* data;
  Index row_floats;
  float& maximum(Index r) const { return data[r * row_floats]; }
  float& total(Index r) const { return data[r * row_floats + 1]; }
  float* values(Index r) const { return data + r * row_floats + 2; }
};

Index rows_of(const AttentionItem& item) {
  return (item.row_end - item.row_begin) * (item.head_end - item.head_begin);
}

// r: row among all of the item's heads.
void write_row(const PagedArgs& args, const AttentionItem& item, Index r, float maximum,
               float total, const float* values) {
  const Index group = args.heads / args.kv_heads, rows = item.row_end - item.row_begin;
  const Index row_of_head = item.row_begin + r % rows;
  const Index head = (item.head_begin + r / rows) * group + row_of_head % group;
  const Index token = args.query_start[item.request] + row_of_head / group;
  float factor = 1.f;
  if (args.sinks != nullptr) {
    const float sink = args.sinks[head];
    const float top = sink > maximum ? sink : maximum;
    factor = exp_one(maximum - top);
    total = total * factor + exp_one(sink - top);
  }
  const Vec scale = splat(total > 0.f ? args.value_scale * factor / total : 0.f);
  with_float(args.out.type, [&]<class O>(Tag<O>) {
    O* const out = row<O>(args.out, token * args.heads + head);
    for_lanes(args.value_dim,
              [&](Index i, int n) { store(out + i, load(values + i, n) * scale, n); });
  });
}

// into ← into ⊕ from, softmax states of one row.
void merge_row(const Partial& into, const Partial& from, Index r, Index width) {
  if (from.total(r) == 0.f) return;
  const float top = into.maximum(r) > from.maximum(r) ? into.maximum(r) : from.maximum(r);
  const float old = into.total(r) == 0.f ? 0.f : exp_one(into.maximum(r) - top);
  const float add = exp_one(from.maximum(r) - top);
  float* const to = into.values(r);
  const float* const values = from.values(r);
  for_lanes(width, [&](Index i, int n) {
    store(to + i, load(to + i, n) * splat(old) + load(values + i, n) * splat(add), n);
  });
  into.total(r) = into.total(r) * old + from.total(r) * add;
  into.maximum(r) = top;
}

void finish(const PagedArgs& args, const AttentionItem& item, const Partial& state) {
  for (Index r = 0; r < rows_of(item); ++r) {
    write_row(args, item, r, state.maximum(r), state.total(r), state.values(r));
  }
}

// begins: state holds nothing yet; ends: what it holds then is the result.
template <class K>
void run_segments(const PagedArgs& args, const AttentionItem& item, AttentionTile<K>& tile,
                  const Partial& state, const Partial& next, bool begins, bool ends) {
  Index s = item.segment_begin;
  if (begins) tile.run_segment(s++, state.data, state.row_floats);
  for (; s < item.segment_end; ++s) {
    tile.run_segment(s, next.data, next.row_floats);
    for (Index r = 0; r < rows_of(item); ++r) merge_row(state, next, r, args.value_dim);
  }
  if (ends) finish(args, item, state);
}

template <class K>
void run_item(const PagedArgs& args, const AttentionItem& item, float* scratch, float* partial) {
  const Index rows = rows_of(item);
  const Index row_floats = args.value_dim + 2;
  AttentionTile<K> tile(args, item, scratch);
  if (partial != nullptr) {
    for (Index s = item.segment_begin; s < item.segment_end; ++s, partial += rows * row_floats) {
      tile.run_segment(s, partial, row_floats);
    }
    return;
  }
  float* const first = tile.states();
  run_segments(args, item, tile, {first, row_floats}, {first + rows * row_floats, row_floats}, true,
               true);
}

}  // namespace

void attention(const PagedArgs& args, const AttentionItem& item, float* scratch, float* partial) {
  with_cache(args.cache_type, [&]<class K>(Tag<K>) { run_item<K>(args, item, scratch, partial); });
}

void attention_carry(const PagedArgs& args, const AttentionItem& item, float* scratch, float* state,
                     bool begins, bool ends) {
  const Index row_floats = args.value_dim + 2;
  with_cache(args.cache_type, [&]<class K>(Tag<K>) {
    AttentionTile<K> tile(args, item, scratch);
    run_segments(args, item, tile, {state, row_floats}, {tile.states(), row_floats}, begins, ends);
  });
}

// partial holds the item's segments one after another; the first is merged into.
void attention_merge(const PagedArgs& args, const AttentionItem& item, float* partial) {
  const Index rows = rows_of(item);
  const Index row_floats = args.value_dim + 2;
  const Partial state{partial, row_floats};
  for (Index s = item.segment_begin + 1; s < item.segment_end; ++s) {
    const Partial next{partial + (s - item.segment_begin) * rows * row_floats, row_floats};
    for (Index r = 0; r < rows; ++r) merge_row(state, next, r, args.value_dim);
  }
  finish(args, item, state);
}

}  // namespace quire::cpu::QUIRE_CPU_ISA
