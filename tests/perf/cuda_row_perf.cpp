// The cases of operators on rows in cuda_ops_perf: each moves its bytes once.

#include "backend/fragment_weights.h"
#include "tests/perf/cuda_bench.h"

namespace quire::perf {
namespace {

struct Rows {
  Rows(Bench& bench, std::int64_t rows) : t(bench.size(rows, 4)), h(bench.size(4096, 64)) {}
  double elements() const { return static_cast<double>(t * h); }
  std::int64_t t, h;
};

void norms(Bench& bench) {
  for (const std::int64_t rows : {8192, 256}) {
    const std::string of = rows == 8192 ? "" : ", rows " + std::to_string(rows);
    const int times = rows == 8192 ? 1 : 8;
    const Rows r(bench, rows);
    if (const std::string name = "rms_norm, bf16" + of; bench.begin(name)) {
      const TensorView x = bench.random({r.t, r.h}), out = bench.zeros(DType::bf16, {r.t, r.h}),
                       weight = bench.random({r.h});
      bench.memory_bound(name, rows == 8192 ? 0.90 : 0, r.elements() * 4,
                         [&] { bench.ops().rms_norm(out, x, weight, 1e-6f, 0.f, bench.stream()); },
                         {.times = times});
    }
    if (const std::string name = "add_rms_norm, bf16 into an f32 residual" + of;
        bench.begin(name)) {
      const TensorView x = bench.random({r.t, r.h}), weight = bench.random({r.h}),
                       residual = bench.zeros(DType::f32, {r.t, r.h}),
                       out = bench.zeros(DType::bf16, {r.t, r.h});
      bench.memory_bound(
          name, rows == 8192 ? 0.90 : 0, r.elements() * 12,
          [&] { bench.ops().add_rms_norm(out, residual, x, weight, 1e-6f, 0.f, bench.stream()); },
          {.times = times});
    }
  }
}

// Norms, rotation and the cache in one; and apart, as where there is nothing to fuse.
void heads(Bench& bench, std::int64_t tokens) {
  const std::int64_t t = bench.size(tokens, 4), q_heads = bench.size(32, 2),
                     kv_heads = bench.size(8, 1), dim = 128, blocks = (t + 15) / 16;
  const std::string rows = ", rows " + std::to_string(tokens);
  const int times = tokens > 1000 ? 1 : 8;
  const auto values = static_cast<double>(t * dim);
  const auto fill = [&](HeadArgs& args) {
    args.q = bench.random({t, q_heads, dim});
    args.k = bench.random({t, kv_heads, dim}), args.v = bench.random({t, kv_heads, dim});
    args.q_norm = bench.random({dim}), args.k_norm = bench.random({dim}), args.norm_eps = 1e-6f;
    args.positions = bench.counted<std::int32_t>(t);
    args.cos_sin = bench.zeros(DType::f32, {t, dim});
    args.k_cache = bench.zeros(DType::bf16, {blocks, 16, kv_heads, dim});
    args.v_cache = bench.zeros(DType::bf16, {blocks, 16, kv_heads, dim});
    args.slots = bench.counted<std::int64_t>(t);
  };
  HeadArgs args;
  if (const std::string name = "heads: norms, rope, cache" + rows; bench.begin(name)) {
    fill(args);
    bench.memory_bound(name, 0, values * 4 * static_cast<double>(q_heads + 2 * kv_heads),
                       [&] { bench.ops().prepare_heads(args, bench.stream()); }, {.times = times});
  }
  if (const std::string name = "kv_write" + rows; bench.begin(name)) {
    fill(args);
    bench.memory_bound(name, 0, values * 8 * static_cast<double>(kv_heads),
                       [&] {
                         bench.ops().kv_write(args.k_cache, args.v_cache, args.k, args.v,
                                              args.slots, {}, bench.stream());
                       },
                       {.times = times});
  }
  if (const std::string name = "rope, 40 heads" + (tokens == 8192 ? "" : rows); bench.begin(name)) {
    fill(args);
    const TensorView x = bench.random({t, bench.size(40, 2), dim});
    bench.memory_bound(name, tokens == 8192 ? 0.90 : 0, static_cast<double>(x.bytes()) * 2,
                       [&] {
                         bench.ops().rope(x, args.positions, args.cos_sin, RopeStyle::halves,
                                          bench.stream());
                       },
                       {.times = times});
  }
}

void elementwise(Bench& bench) {
  const Rows r(bench, 8192);
  const std::int64_t inner = bench.size(14336, 64);
  if (const std::string name = "silu(gate) times up"; bench.begin(name)) {
    const TensorView gate_up = bench.random({r.t, 2 * inner}),
                     out = bench.zeros(DType::bf16, {r.t, inner});
    bench.memory_bound(name, 0.90, static_cast<double>(r.t * inner) * 6, [&] {
      bench.ops().gated_activation(out, gate_up, Activation::silu, bench.stream());
    });
  }
  if (const std::string name = "add, f32 and bf16"; bench.begin(name)) {
    const TensorView sum = bench.zeros(DType::f32, {r.t, r.h}), x = bench.random({r.t, r.h});
    bench.memory_bound(name, 0, r.elements() * 10,
                       [&] { bench.ops().add(sum, sum, x, bench.stream()); });
  }
  if (const std::string name = "copy, f32 to bf16"; bench.begin(name)) {
    const TensorView x = bench.zeros(DType::f32, {r.t, r.h}),
                     out = bench.zeros(DType::bf16, {r.t, r.h});
    bench.memory_bound(name, 0, r.elements() * 6,
                       [&] { bench.ops().copy(out, x, bench.stream()); });
  }
  if (const std::string name = "sigmoid gate"; bench.begin(name)) {
    const TensorView x = bench.random({r.t, r.h}), gate = bench.random({r.t, r.h});
    bench.memory_bound(name, 0, r.elements() * 6,
                       [&] { bench.ops().sigmoid_gate(x, gate, bench.stream()); });
  }
  if (const std::string name = "scale, bf16"; bench.begin(name)) {
    const TensorView x = bench.random({r.t, r.h});
    bench.memory_bound(name, 0, r.elements() * 4,
                       [&] { bench.ops().scale(x, 1.f, bench.stream()); });
  }
  if (const std::string name = "activation without a gate"; bench.begin(name)) {
    const TensorView x = bench.random({r.t, r.h});
    bench.memory_bound(name, 0, r.elements() * 4,
                       [&] { bench.ops().activation(x, x, Activation::relu2, bench.stream()); });
  }
  if (const std::string name = "soft cap of logits, 256 rows of 128256"; bench.begin(name)) {
    const TensorView x = bench.zeros(DType::f32, {bench.size(256, 2), bench.size(128256, 500)});
    bench.memory_bound(name, 0, static_cast<double>(x.bytes()) * 2,
                       [&] { bench.ops().soft_cap(x, 30.f, bench.stream()); });
  }
}

void lookups(Bench& bench) {
  const Rows r(bench, 8192);
  const std::int64_t vocab = bench.size(128256, 100);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(r.t));
  for (std::size_t i = 0; i < ids.size(); ++i)
    ids[i] = static_cast<std::int32_t>(i * 7919 % static_cast<std::size_t>(vocab));
  if (const std::string name = "embedding, rows 8192"; bench.begin(name)) {
    const TensorView table = bench.random({vocab, r.h}), at = bench.upload(ids, {r.t}),
                     out = bench.zeros(DType::f32, {r.t, r.h});
    bench.memory_bound(name, 0, r.elements() * 6,
                       [&] { bench.ops().embedding(out, table, at, bench.stream()); });
  }
  if (const std::string name = "embedding, 8 bits in groups of 32, rows 8192"; bench.begin(name)) {
    constexpr GroupFormat kEight{.bits = 8, .group = 32, .zero = 128};
    const std::int64_t wide = bench.size(4096, 128), bytes = fragment_row_bytes(kEight, wide);
    const Weight weight{.data = bench.codes(DType::u8, {vocab / 16 * 16, bytes}),
                        .scales = {},
                        .format = WeightFormat::fragments,
                        .group = kEight};
    for (std::int32_t& id : ids) id %= static_cast<std::int32_t>(vocab / 16 * 16);
    const TensorView at = bench.upload(ids, {r.t}), out = bench.zeros(DType::bf16, {r.t, wide});
    bench.memory_bound(name, 0, static_cast<double>(r.t * (bytes + 2 * wide)), [&] {
      bench.ops().quantized_embedding(out, weight, 0, at, bench.stream());
    });
  }
  if (const std::string name = "gather, rows 8192"; bench.begin(name)) {
    const TensorView x = bench.random({r.t, r.h}), at = bench.counted<std::int32_t>(r.t),
                     out = bench.zeros(DType::bf16, {r.t, r.h});
    bench.memory_bound(name, 0, r.elements() * 4,
                       [&] { bench.ops().gather_rows(out, x, at, bench.stream()); });
  }
  if (const std::string name = "zeros in 64 pages of 2 MiB"; bench.begin(name)) {
    const std::int64_t count = bench.size(64, 2), page = bench.size(2 << 20, 256);
    const TensorView pages = bench.zeros(DType::u8, {count, page}),
                     ids = bench.counted<std::int32_t>(count);
    bench.memory_bound(name, 0, static_cast<double>(count * page),
                       [&] { bench.ops().zero_blocks(pages, ids, bench.stream()); });
  }
  if (const std::string name = "copy of 64 pages of 2 MiB"; bench.begin(name)) {
    const std::int64_t count = bench.size(64, 2), page = bench.size(2 << 20, 256);
    const TensorView pages = bench.zeros(DType::u8, {2 * count, page}),
                     from = bench.counted<std::int32_t>(count);
    std::vector<std::int32_t> behind;
    for (std::int64_t i = 0; i < count; ++i) behind.push_back(static_cast<std::int32_t>(count + i));
    const TensorView to = bench.upload(behind, {count});
    bench.memory_bound(name, 0, 2. * static_cast<double>(count * page),
                       [&] { bench.ops().copy_blocks(pages, to, from, bench.stream()); });
  }
}

// What a step of 256 requests asks first.
void tables(Bench& bench) {
  const std::string name = "block tables of 256 rows of 512: gathered, then slots";
  if (!bench.begin(name)) return;
  const std::int64_t rows = bench.size(256, 3), columns = bench.size(512, 8);
  const TableGroup group{.table = bench.zeros(DType::i32, {rows, columns}),
                         .rows = bench.zeros(DType::i32, {rows, columns}),
                         .slots = bench.zeros(DType::i64, {rows}),
                         .ratio = 1,
                         .kernel_block_size = 16};
  const TableRows at{
      .slot = bench.counted<std::int32_t>(rows),
      .counts = bench.each(rows, static_cast<std::int32_t>(columns)).reshape({1, rows}),
      .query_start = bench.counted<std::int32_t>(rows + 1),
      .seq_lens = bench.each(rows, static_cast<std::int32_t>(columns * 16))};
  bench.memory_bound(name, 0, static_cast<double>(rows * columns) * 8,
                     [&] {
                       bench.ops().gather_block_tables({&group, 1}, at, bench.stream());
                       bench.ops().slot_mapping({&group, 1}, at, {}, bench.stream());
                     },
                     {.times = 8});
}

}  // namespace

void row_cases(Bench& bench) {
  norms(bench);
  for (const std::int64_t tokens : {8192, 256}) heads(bench, tokens);
  elementwise(bench);
  lookups(bench);
  tables(bench);
}

}  // namespace quire::perf
