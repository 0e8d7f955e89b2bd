// What happens to the heads of a step's tokens before attention: norms, rotation, cache writes.

#include <algorithm>
#include <cassert>

#include "cpu/operators.h"

namespace quire::cpu {
namespace {

// [blocks, block_size, kv_heads, D] as one row per (slot, head) is not affine when blocks are
// padded, so a slot's row is found here.
std::byte* slot_row(TensorView cache, std::int64_t slot) {
  const std::int64_t size = cache.extent(1);
  const std::int64_t element = slot / size * cache.stride(0) + slot % size * cache.stride(1);
  return static_cast<std::byte*>(cache.data()) +
         element * static_cast<std::int64_t>(size_of(cache.dtype()));
}

// Heads [begin, end) of a token's x into its slot.
void write_heads(Context& on, TensorView cache, TensorView x, float scale, std::int64_t slot,
                 std::int64_t token, std::int64_t begin, std::int64_t end) {
  assert(slot < cache.extent(0) * cache.extent(1));
  const Rows to{slot_row(cache, slot), cache_float_of(cache.dtype()), 0, cache.extent(2),
                cache.stride(2)};
  const Rows from = rows_of(x.rows(token, token + 1));
  if (to.type == Float::e4m3) {
    on.kernels.quantize_rows(to, from, scale, x.extent(2), begin, end);
  } else {
    on.kernels.copy_rows(to, from, x.extent(2), begin, end);
  }
}

// Norm and rotation of queries or keys.
struct Turn {
  NormArgs norm = {};
  RopeArgs rope = {};
  bool norms = false, rotates = false;

  Turn(const HeadArgs& args, TensorView x, TensorView weight)
      : norms(!weight.empty()), rotates(!args.cos_sin.empty()) {
    if (norms) norm = norm_args(x, x, weight, args.norm_eps, args.norm_offset);
    if (rotates) rope = rope_args(x, args.positions, args.cos_sin, args.style);
  }
  void operator()(const Kernels& kernels, std::int64_t begin, std::int64_t end) const {
    if (norms) kernels.norm(norm, begin, end);
    if (rotates) kernels.rope(rope, begin, end);
  }
};

}  // namespace

Float cache_float_of(DType dtype) {
  return dtype == DType::fp8_e4m3 ? Float::e4m3 : float_of(dtype);
}

void kv_write(Context& on, TensorView k_cache, TensorView v_cache, TensorView k, TensorView v,
              TensorView slots, CacheScale scale) {
  const auto slot = slots.as<std::int64_t, 1>();
  on.for_rows(k.extent(0), 2 * k.extent(1) * k.extent(2),
              [&](std::int64_t begin, std::int64_t end) {
                for (std::int64_t t = begin; t < end; ++t) {
                  if (slot(t) < 0) continue;
                  write_heads(on, k_cache, k, scale.k, slot(t), t, 0, k.extent(1));
                  if (!v_cache.empty())
                    write_heads(on, v_cache, v, scale.v, slot(t), t, 0, v.extent(1));
                }
              });
}

// Shared out by heads, a token's queries first: a single token is work for several threads.
void prepare_heads(Context& on, const HeadArgs& args) {
  const std::int64_t queries = args.q.extent(1), keys = args.k.extent(1), heads = queries + keys;
  const auto slot = args.slots.as<std::int64_t, 1>();
  const Turn turn_queries(args, args.q, args.q_norm), turn_keys(args, args.k, args.k_norm);
  const auto prepare = [&](std::int64_t t, std::int64_t begin, std::int64_t end) {
    if (begin < queries)
      turn_queries(on.kernels, t * queries + begin, t * queries + std::min(end, queries));
    if (end <= queries) return;
    const std::int64_t from = std::max<std::int64_t>(begin - queries, 0), to = end - queries;
    turn_keys(on.kernels, t * keys + from, t * keys + to);
    if (slot(t) < 0) return;
    write_heads(on, args.k_cache, args.k, args.cache_scale.k, slot(t), t, from, to);
    write_heads(on, args.v_cache, args.v, args.cache_scale.v, slot(t), t, from, to);
  };
  on.for_rows(args.q.extent(0) * heads, 4 * args.q.extent(2),
              [&](std::int64_t begin, std::int64_t end) {
                for (std::int64_t i = begin; i < end;) {
                  const std::int64_t t = i / heads, next = std::min(end, (t + 1) * heads);
                  prepare(t, i - t * heads, next - t * heads);
                  i = next;
                }
              });
}

}  // namespace quire::cpu
