#include <catch2/catch.hpp>
#include <cmath>
#include <set>

#include "backend/no_token.h"
#include "tests/support/op_test.h"

namespace quire::test {
namespace {

struct Settings {
  float temperature = 1.f;
  std::int32_t top_k = 0;
  float top_p = 1.f, min_p = 0.f;
};

// Draws for rows of logits; row i has seed seeds[i] and position positions[i].
std::vector<std::int32_t> draw(OpRun& run, const HostTensor& logits, const Settings& s,
                               const std::vector<std::uint64_t>& seeds,
                               const std::vector<std::int64_t>& positions) {
  const std::size_t rows = seeds.size();
  const auto floats = [&](float v) { return run.upload(tensor_of(std::vector<float>(rows, v))); };
  SamplingArgs args;
  args.temperature = floats(s.temperature);
  args.top_k = run.upload(tensor_of(std::vector<std::int32_t>(rows, s.top_k)));
  args.top_p = floats(s.top_p);
  args.min_p = floats(s.min_p);
  args.seed = run.upload(tensor_of(seeds));
  args.position = run.upload(tensor_of(positions));
  const TensorView tokens = run.output(DType::i32, {static_cast<std::int64_t>(rows)});
  run.ops().sample(tokens, run.upload(logits), args, run.stream());
  const HostTensor got = run.download(tokens);
  return {got.as<std::int32_t>(), got.as<std::int32_t>() + rows};
}

HostTensor repeat(const std::vector<float>& row, std::int64_t rows) {
  HostTensor t(DType::f32, {rows, static_cast<std::int64_t>(row.size())});
  for (std::int64_t i = 0; i < t.numel(); ++i)
    t.set(i, row[static_cast<std::size_t>(i) % row.size()]);
  return t;
}

// What vLLM's sampler would draw from: temperature, min_p, top_k, top_p over the sorted
// distribution.
std::vector<double> distribution(const std::vector<float>& logits, const Settings& s) {
  std::vector<double> p;
  for (const float x : logits) p.push_back(std::exp(static_cast<double>(x) / s.temperature));
  const auto normalize = [&] {
    double total = 0;
    for (const double v : p) total += v;
    for (double& v : p) v /= total;
  };
  std::vector<double> sorted = p;
  std::sort(sorted.rbegin(), sorted.rend());
  const double kth = s.top_k > 0 ? sorted[static_cast<std::size_t>(s.top_k) - 1] : 0.;
  for (double& v : p) v = v < s.min_p * sorted[0] || v < kth ? 0. : v;
  normalize();
  std::vector<std::size_t> order(p.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return p[a] > p[b]; });
  double before = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const double share = p[order[i]];
    if (i > 0 && before >= s.top_p) p[order[i]] = 0.;
    before += share;
  }
  normalize();
  return p;
}

}  // namespace

TEST_CASE("greedy takes the largest logit, of equal ones the first", "[ops][sampling]") {
  HostTensor logits(DType::f32, {3, 1000});
  for (std::int64_t i = 0; i < logits.numel(); ++i) logits.set(i, -1.f);
  logits.set(417, 2.f);
  logits.set(418, 2.f);
  logits.set(999, 2.f);
  logits.set(1000 + 999, 3.f);
  for (std::int64_t i = 2000; i < 3000; ++i) logits.set(i, -INFINITY);
  logits.set(2000 + 600, -5.f);
  for (OpBackend& backend : op_backends()) {
    INFO(backend.name);
    OpRun run(backend);
    CHECK(draw(run, logits, {.temperature = 0.f}, {1, 2, 3}, {0, 0, 0}) ==
          std::vector<std::int32_t>{417, 999, 600});
  }
}

TEST_CASE("nothing is drawn from what is not a number", "[ops][sampling]") {
  HostTensor logits(DType::f32, {5, 1000});
  for (std::int64_t i = 0; i < logits.numel(); ++i) logits.set(i, i % 1000 == 600 ? 60.f : -1.f);
  for (std::int64_t i = 0; i < 1000; ++i) logits.set(1000 + i, NAN);
  logits.set(2000 + 999, NAN);
  logits.set(3000 + 5, INFINITY);
  logits.set(4000 + 5, -INFINITY);
  const auto settings = GENERATE(values<Settings>({
      {.temperature = 0.f},
      {},
      {.top_k = 3},
      {.top_k = 990},
      {.top_p = 0.9f},
      {.min_p = 0.1f},
  }));
  for (OpBackend& backend : op_backends()) {
    INFO(backend.name);
    OpRun run(backend);
    CHECK(draw(run, logits, settings, {1, 2, 3, 4, 5}, {0, 0, 0, 0, 0}) ==
          std::vector<std::int32_t>{600, kNoToken, kNoToken, kNoToken, 600});
  }
}

TEST_CASE("who reads a row of drawn tokens reads row 0 for none", "[ops][sampling]") {
  HostTensor table(DType::bf16, {4, 64});
  for (std::int64_t i = 0; i < table.numel(); ++i) table.set(i, static_cast<float>(i % 61));
  for (OpBackend& backend : op_backends()) {
    INFO(backend.name);
    OpRun run(backend);
    for (const DType dtype : {DType::bf16, DType::f32}) {
      const TensorView out = run.output(dtype, {2, 64});
      run.ops().embedding(out, run.upload(table),
                          run.upload(tensor_of(std::vector<std::int32_t>{kNoToken, 2})),
                          run.stream());
      const HostTensor got = run.download(out);
      for (std::int64_t i = 0; i < 64; ++i) {
        CHECK(got.at(i) == table.at(i));
        CHECK(got.at(64 + i) == table.at(128 + i));
      }
    }
  }
}

TEST_CASE("draws follow the filtered distribution", "[ops][sampling][draws]") {
  struct Case {
    const char* name;
    Settings settings;
  };
  const auto c = GENERATE(values<Case>({
      {"plain", {}},
      {"warm", {.temperature = 1.7f}},
      {"cold", {.temperature = 0.4f}},
      {"top_k", {.top_k = 5}},
      {"top_k of one", {.top_k = 1}},
      {"top_p", {.top_p = 0.8f}},
      {"tiny top_p", {.top_p = 1e-6f}},
      {"min_p", {.min_p = 0.2f}},
      {"all of them", {.temperature = 1.3f, .top_k = 9, .top_p = 0.85f, .min_p = 0.05f}},
  }));
  INFO(c.name);
  std::mt19937 rng(1);
  std::normal_distribution<float> normal(0.f, 1.5f);
  std::vector<float> row(24);
  for (float& v : row) v = normal(rng);
  row[7] = -INFINITY;
  const std::vector<double> p = distribution(row, c.settings);
  constexpr std::int64_t kDraws = 20000;
  std::vector<std::uint64_t> seeds(kDraws);
  std::vector<std::int64_t> positions(kDraws);
  for (std::size_t i = 0; i < kDraws; ++i) {
    seeds[i] = 1234 + i / 100;
    positions[i] = static_cast<std::int64_t>(i % 100);
  }
  OpBackend& backend = op_backends().back();
  OpRun run(backend);
  std::vector<double> counts(row.size());
  for (const std::int32_t t : draw(run, repeat(row, kDraws), c.settings, seeds, positions)) {
    counts.at(static_cast<std::size_t>(t)) += 1;
  }
  double chi_square = 0;
  int freedom = -1;
  for (std::size_t i = 0; i < p.size(); ++i) {
    if (p[i] == 0.) {
      CHECK(counts[i] == 0);
      continue;
    }
    chi_square += std::pow(counts[i] - kDraws * p[i], 2) / (kDraws * p[i]);
    ++freedom;
  }
  // Mean is the number of degrees of freedom; 5 standard deviations are never seen by chance.
  CHECK(chi_square <= freedom + 5 * std::sqrt(2. * freedom) + 1e-9);
}

TEST_CASE("nothing is drawn that a filter forbids, however many logits are equal",
          "[ops][sampling]") {
  const auto s = GENERATE(values<Settings>({
      {.top_k = 5},
      {.top_p = 0.3f},
      {.min_p = 0.3f},
      {.temperature = 1.3f, .top_k = 40, .top_p = 0.5f, .min_p = 0.01f},
  }));
  std::mt19937 rng(4);
  std::normal_distribution<float> normal(0.f, 2.f);
  std::vector<float> row(700);
  for (float& v : row) v = std::round(normal(rng));
  const std::vector<double> p = distribution(row, s);
  INFO(s.top_k << " " << s.top_p << " " << s.min_p);
  for (OpBackend& backend : op_backends()) {
    INFO(backend.name);
    OpRun run(backend);
    const auto tokens = draw(run, repeat(row, 6), s, {1, 2, 3, 4, 5, 6}, {0, 0, 0, 9, 9, 9});
    for (const std::int32_t token : tokens) CHECK(p.at(static_cast<std::size_t>(token)) > 0.);
    CHECK(std::set<std::int32_t>(tokens.begin(), tokens.end()).size() > 1);
  }
}

TEST_CASE("a draw depends on its seed and position alone", "[ops][sampling]") {
  std::mt19937 rng(2);
  const HostTensor row = random_tensor(rng, DType::f32, {1, 5000}, 2.f);
  std::vector<float> values(row.as<float>(), row.as<float>() + 5000);
  for (OpBackend& backend : op_backends()) {
    INFO(backend.name);
    OpRun run(backend);
    const auto batch = draw(run, repeat(values, 6), {}, {7, 7, 7, 8, 9, 10}, {0, 1, 2, 0, 0, 0});
    CHECK(std::set<std::int32_t>(batch.begin(), batch.end()).size() > 3);
    CHECK(draw(run, row, {}, {7}, {2}) == std::vector{batch[2]});
    CHECK(draw(run, row, {}, {8}, {0}) == std::vector{batch[3]});
    // Leaving tokens out that were not drawn changes nothing.
    CHECK(draw(run, row, {.min_p = 1e-6f}, {7}, {1}) == std::vector{batch[1]});
    // All backends draw alike.
    OpRun first(op_backends().front());
    CHECK(draw(first, repeat(values, 6), {}, {7, 7, 7, 8, 9, 10}, {0, 1, 2, 0, 0, 0}) == batch);
  }
}

// Rows of several segments, as they come (peaked), all much alike (flat), with many ties, and
// nearly all forbidden; the last token of the vocabulary is alone in its run of four.
TEST_CASE("wide rows are drawn from as by the reference, whatever their shape", "[ops][sampling]") {
  constexpr std::int64_t kVocab = 9001, kRows = 24;
  const auto shape = GENERATE(0, 1, 2, 3);
  const auto s = GENERATE(values<Settings>({
      {},
      {.temperature = 0.f},
      {.temperature = .6f, .top_k = 20, .top_p = .8f},
      {.top_k = 300, .min_p = .001f},
      {.top_k = 5000, .top_p = .95f},
      {.top_p = .9f},
      {.temperature = .2f, .top_p = .05f},
      {.top_p = .5f, .min_p = .0001f},
      {.min_p = .3f},
  }));
  INFO(shape << " " << s.temperature << " " << s.top_k << " " << s.top_p << " " << s.min_p);
  std::mt19937 rng(11);
  std::normal_distribution<float> normal(0.f, shape == 1 ? .01f : 3.f);
  std::vector<float> row(kVocab);
  for (float& v : row) v = shape == 2 ? std::round(normal(rng)) : normal(rng);
  for (std::size_t i = 0; shape == 3 && i < row.size(); ++i) {
    if (i % 449 != 0) row[i] = -INFINITY;
  }
  row[kVocab - 1] = 9.f;
  std::vector<std::uint64_t> seeds;
  std::vector<std::int64_t> positions;
  for (std::int64_t r = 0; r < kRows; ++r) {
    seeds.push_back(static_cast<std::uint64_t>(77 + r / 4));
    positions.push_back(r % 4);
  }
  OpRun first(op_backends().front());
  const auto want = draw(first, repeat(row, kRows), s, seeds, positions);
  for (OpBackend& backend : op_backends()) {
    INFO(backend.name);
    OpRun run(backend);
    CHECK(draw(run, repeat(row, kRows), s, seeds, positions) == want);
  }
}

TEST_CASE("the same seeds give uncorrelated draws at neighbouring positions",
          "[ops][sampling][large]") {
  constexpr std::size_t kRows = 4000;
  std::vector<std::uint64_t> seeds(kRows, 5);
  std::vector<std::int64_t> positions(kRows);
  for (std::size_t i = 0; i < kRows; ++i) positions[i] = static_cast<std::int64_t>(i);
  OpRun run(op_backends().back());
  const auto bits = draw(run, repeat({0.f, 0.f}, kRows), {}, seeds, positions);
  int changes = 0;
  for (std::size_t i = 1; i < kRows; ++i) changes += bits[i] != bits[i - 1] ? 1 : 0;
  CHECK(std::abs(changes - 2000) < 5 * 32);
}

TEST_CASE("a mask forbids what it does not allow, in its rows only", "[ops][sampling]") {
  const std::int64_t vocab = GENERATE(64, 77, 1000);
  const std::int64_t words = (vocab + 31) / 32;
  std::mt19937 rng(5);
  const HostTensor logits = random_tensor(rng, DType::f32, {4, vocab}, 3.f);
  const std::vector<std::int32_t> rows = {3, 1};
  std::vector<std::uint32_t> mask(static_cast<std::size_t>(2 * words));
  for (std::uint32_t& word : mask) word = rng();
  mask[0] = 0;
  mask[1] = ~0u;
  for (OpBackend& backend : op_backends()) {
    INFO(backend.name);
    OpRun run(backend);
    const TensorView x = run.upload(logits);
    run.ops().mask_logits(
        x, {.words = run.upload(tensor_of(mask, {2, words})), .rows = run.upload(tensor_of(rows))},
        run.stream());
    const HostTensor got = run.download(x);
    int wrong = 0;
    for (std::int64_t i = 0; i < got.numel(); ++i) {
      const std::int64_t row = i / vocab, token = i % vocab;
      const std::int64_t at = row == 3 ? 0 : 1;
      const std::uint32_t word = mask[static_cast<std::size_t>(at * words + token / 32)];
      const bool allowed = row == 0 || row == 2 || (word >> token % 32 & 1) != 0;
      wrong += got.at(i) != (allowed ? logits.at(i) : -INFINITY);
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("biases are added where they are listed", "[ops][sampling]") {
  std::mt19937 rng(3);
  const HostTensor logits = random_tensor(rng, DType::f32, {2, 50}, 3.f);
  for (OpBackend& backend : op_backends()) {
    INFO(backend.name);
    OpRun run(backend);
    const auto ints = [&](std::vector<std::int32_t> v) { return run.upload(tensor_of(v)); };
    const TensorView x = run.upload(logits);
    const std::vector<float> values = {2.5f, -INFINITY, 0.5f};
    run.ops().bias_logits(x,
                          {.rows = ints({0, 1, 0}),
                           .tokens = ints({5, 7, 5}),
                           .values = run.upload(tensor_of(values))},
                          run.stream());
    HostTensor got = run.download(x);
    CHECK(got.at(57) == -INFINITY);
    got.set(57, logits.at(57));
    std::vector<double> want = logits.values();
    want[5] += 3;
    check_close(got, want);
  }
}

TEST_CASE("penalties follow the table of what was seen, and drafts that are not in it yet",
          "[ops][sampling]") {
  constexpr std::int64_t kSlots = 3, kVocab = 51;  // odd: words of two counts straddle slots
  std::mt19937 rng(6);
  const HostTensor logits = random_tensor(rng, DType::f32, {2, kVocab}, 3.f);
  std::vector<double> want = logits.values();
  const auto penalize = [&](std::size_t at, double rep, double freq, double pres, int count) {
    want[at] = want[at] > 0 ? want[at] / rep : want[at] * rep;
    want[at] -= freq * count + (count > 0 ? pres : 0.);
  };
  penalize(kVocab + 5, 1.5, 0.25, 0.5, 3);
  penalize(kVocab + 6, 1.5, 0.25, 0.5, 0);
  penalize(kVocab + 9, 1.5, 0.25, 0.5, 2);  // a draft, twice
  penalize(49, 1., -1., 0., kMostSeen);
  for (OpBackend& backend : op_backends()) {
    INFO(backend.name);
    OpRun run(backend);
    const auto ints = [&](std::vector<std::int32_t> v) { return run.upload(tensor_of(v)); };
    const auto floats = [&](std::vector<float> v) { return run.upload(tensor_of(v)); };
    const TensorView counts =
        run.upload(tensor_of(std::vector<std::uint16_t>(kSlots * kVocab + 1)));
    const TensorView table(counts.data(), DType::u16, {kSlots, kVocab});
    run.ops().set_token_counts(table,
                               {.slots = ints({2, 2, 0, 0}),
                                .tokens = ints({5, 6, 49, 50}),
                                .counts = ints({1, kSeenInPrompt, kMostSeen, kMostSeen - 1})},
                               run.stream());
    // Neighbours in one word, a full count, and entries to be skipped.
    run.ops().count_tokens(table, ints({2, 0, 2, -1, 1, 2}), ints({5, 49, 5, 3, -1, 50}),
                           run.stream());
    const HostTensor got_counts = run.download(counts);
    std::vector<std::uint16_t> want_counts(kSlots * kVocab + 1);
    want_counts[2 * kVocab + 5] = 3;
    want_counts[2 * kVocab + 6] = kSeenInPrompt;
    want_counts[2 * kVocab + 50] = 1;
    want_counts[49] = kMostSeen;
    want_counts[50] = kMostSeen - 1;
    CHECK(std::equal(want_counts.begin(), want_counts.end(), got_counts.as<std::uint16_t>()));
    run.ops().set_token_counts(
        table, {.slots = ints({2, 0}), .tokens = ints({50, 50}), .counts = ints({0, 0})},
        run.stream());

    const TensorView x = run.upload(logits);
    run.ops().penalize_logits(
        x,
        {.counts = table,
         .rows = ints({1, 0}),
         .slots = ints({2, 0}),
         .drafts = run.upload(tensor_of(std::vector<std::int32_t>{9, 9, -1, -1, -1, -1}, {2, 3})),
         .repetition = floats({1.f, 1.5f}),
         .frequency = floats({-1.f, 0.25f}),
         .presence = floats({0.f, 0.5f})},
        run.stream());
    check_close(run.download(x), want);
  }
}

}  // namespace quire::test
