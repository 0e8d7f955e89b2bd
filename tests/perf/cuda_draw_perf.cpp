// The cases from logits to tokens in cuda_ops_perf.

#include <random>

#include "backend/draft_ops.h"
#include "tests/perf/cuda_bench.h"

namespace quire::perf {
namespace {

// As models make them, roughly: a bell, so that few are near the best.
TensorView logits_of(Bench& bench, std::int64_t rows, std::int64_t vocab) {
  std::vector<float> row(static_cast<std::size_t>(vocab));
  std::mt19937 rng(1);
  std::vector<float> logits;
  for (std::int64_t r = 0; r < rows; ++r) {
    // One row's numbers in another order for each: drawing all of them takes longer than all cases.
    if (r == 0) {
      for (float& x : row) {
        x = 0;
        for (int i = 0; i < 4; ++i) x += static_cast<float>(rng() >> 8) * 0x1p-22f - 2.f;
      }
    } else {
      std::rotate(row.begin(), row.begin() + 997 % vocab, row.end());
    }
    logits.insert(logits.end(), row.begin(), row.end());
  }
  return bench.upload(logits, {rows, vocab});
}

SamplingArgs sampling_args(Bench& bench, std::int64_t rows, float temperature, int top_k,
                           float top_p) {
  SamplingArgs args;
  args.temperature = bench.each(rows, temperature);
  args.top_k = bench.each(rows, static_cast<std::int32_t>(top_k));
  args.top_p = bench.each(rows, top_p), args.min_p = bench.each(rows, 0.f);
  args.seed = bench.each(rows, std::uint64_t{7}), args.position = bench.each(rows, std::int64_t{9});
  return args;
}

void sampling(Bench& bench, std::int64_t count, const char* how, float temperature, int top_k,
              float top_p, double goal) {
  const std::string name = "sample, " + std::to_string(count) + " rows of 128256, " + how;
  if (!bench.begin(name)) return;
  const std::int64_t rows = bench.size(count, 3), vocab = bench.size(128256, 500);
  const SamplingArgs args = sampling_args(bench, rows, temperature, top_k, top_p);
  const TensorView logits = logits_of(bench, rows, vocab), tokens = bench.zeros(DType::i32, {rows});
  bench.memory_bound(name, goal, static_cast<double>(logits.bytes()),
                     [&] { bench.ops().sample(tokens, logits, args, bench.stream()); },
                     {.times = count == 1 ? 8 : 1});
}

void log_probs(Bench& bench, std::int64_t count) {
  const std::string name = "log_probs of the 20 best, " + std::to_string(count) + " rows of 128256";
  if (!bench.begin(name)) return;
  const std::int64_t rows = bench.size(count, 2), vocab = bench.size(128256, 500);
  const TensorView logits = logits_of(bench, rows, vocab),
                   tokens = bench.counted<std::int32_t>(rows),
                   ids = bench.zeros(DType::i32, {rows, 20}),
                   values = bench.zeros(DType::f32, {rows, 20}),
                   value = bench.zeros(DType::f32, {rows}), rank = bench.zeros(DType::i32, {rows});
  bench.memory_bound(name, 0, static_cast<double>(logits.bytes()), [&] {
    bench.ops().log_probs(ids, values, value, rank, logits, tokens, bench.stream());
  });
}

void edits(Bench& bench) {
  const std::int64_t rows = bench.size(256, 3), vocab = bench.size(128256, 512);
  if (const std::string name = "mask of logits, 256 rows of 128256"; bench.begin(name)) {
    const TensorView logits = logits_of(bench, rows, vocab);
    const MaskArgs args{.words = bench.zeros(DType::u32, {rows, (vocab + 31) / 32}),
                        .rows = bench.counted<std::int32_t>(rows)};
    bench.memory_bound(name, 0, static_cast<double>(logits.bytes()),
                       [&] { bench.ops().mask_logits(logits, args, bench.stream()); });
  }
  if (const std::string name = "bias of 300 logits of each of 256 rows"; bench.begin(name)) {
    const std::int64_t each = 300, count = rows * each;
    std::vector<std::int32_t> of, tokens;
    for (std::int64_t i = 0; i < count; ++i) {
      of.push_back(static_cast<std::int32_t>(i / each));
      tokens.push_back(static_cast<std::int32_t>(i % each * 7919 % vocab));
    }
    const TensorView logits = logits_of(bench, rows, vocab);
    const BiasArgs args{.rows = bench.upload(of, {count}),
                        .tokens = bench.upload(tokens, {count}),
                        .values = bench.filled(1.f, {count})};
    bench.memory_bound(name, 0, static_cast<double>(count) * 20,
                       [&] { bench.ops().bias_logits(logits, args, bench.stream()); },
                       {.times = 8});
  }
  if (const std::string name = "counts of 256 tokens"; bench.begin(name)) {
    const TensorView counts = bench.zeros(DType::u16, {rows, vocab}),
                     at = bench.counted<std::int32_t>(rows);
    bench.memory_bound(name, 0, static_cast<double>(rows) * 12,
                       [&] { bench.ops().count_tokens(counts, at, at, bench.stream()); },
                       {.times = 8});
  }
  if (const std::string name = "penalties, 256 rows of 128256"; bench.begin(name)) {
    const TensorView logits = logits_of(bench, rows, vocab);
    PenaltyArgs args;
    args.counts = bench.zeros(DType::u16, {rows, vocab});
    args.rows = args.slots = bench.counted<std::int32_t>(rows);
    args.repetition = bench.each(rows, 1.1f);
    args.frequency = args.presence = bench.each(rows, .1f);
    bench.memory_bound(name, 0, static_cast<double>(logits.bytes() + args.counts.bytes()),
                       [&] { bench.ops().penalize_logits(logits, args, bench.stream()); });
  }
}

// Four drafts each of 32 requests: drawn, then verified.
void drafts(Bench& bench) {
  const std::int64_t rows = bench.size(128, 4), vocab = bench.size(128256, 500);
  const auto args_of = [&] { return sampling_args(bench, rows, 1.f, 0, 1.f); };
  if (const std::string name = "drafts drawn, 128 rows of 128256"; bench.begin(name)) {
    const TensorView logits = logits_of(bench, rows, vocab),
                     tokens = bench.zeros(DType::i32, {rows}),
                     shares = bench.zeros(DType::f32, {rows, vocab}),
                     places = bench.counted<std::int32_t>(rows);
    const SamplingArgs args = args_of();
    bench.memory_bound(name, 0, static_cast<double>(logits.bytes() + shares.bytes()), [&] {
      draft_ops(bench.ops()).draw_drafts(tokens, shares, logits, places, args, bench.stream());
    });
  }
  if (const std::string name = "drafts verified, 128 rows of 128256"; bench.begin(name)) {
    const TensorView logits = logits_of(bench, rows, vocab);
    VerifyArgs args;
    args.rows = args.places = args.drafts = bench.counted<std::int32_t>(rows);
    args.shares = bench.filled(1.f / static_cast<float>(vocab), {rows, vocab});
    args.sampling = args_of();
    bench.memory_bound(name, 0, static_cast<double>(logits.bytes() + args.shares.bytes()),
                       [&] { draft_ops(bench.ops()).verify_drafts(logits, args, bench.stream()); });
  }
}

}  // namespace

void draw_cases(Bench& bench) {
  sampling(bench, 256, "greedy", 0.f, 0, 1.f, 1. / 3);
  sampling(bench, 256, "temperature 1", 1.f, 0, 1.f, 1. / 3);
  sampling(bench, 256, "top_k 50", 1.f, 50, 1.f, 1. / 3);
  sampling(bench, 256, "top_p 0.9", 1.f, 0, 0.9f, 1. / 3);
  sampling(bench, 1, "greedy", 0.f, 0, 1.f, 0);
  sampling(bench, 1, "top_k 50", 1.f, 50, 1.f, 0);
  log_probs(bench, 32);
  edits(bench);
  drafts(bench);
}

}  // namespace quire::perf
