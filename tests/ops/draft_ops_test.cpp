// Drafts that are drawn, kept and replaced, against the definition in doubles.

#include "backend/draft_ops.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>
#include <set>

#include "backend/no_token.h"
#include "tests/support/op_test.h"

namespace quire::test {
namespace {

using Shares = std::vector<double>;

struct Filter {
  float temperature = 1, top_p = 1, min_p = 0;
  std::int32_t top_k = 0;
};

constexpr Filter kFilters[] = {{},
                               {.temperature = 0.6f, .top_p = 0.9f},
                               {.temperature = 1.3f, .top_k = 6},
                               {.temperature = 0.9f, .min_p = 0.1f},
                               {.temperature = 1, .top_p = 0.8f, .min_p = 0.02f, .top_k = 10}};

// Of equal ones the smaller token comes first; those that equal the k-th stay.
Shares shares_of(const float* logits, std::size_t vocab, const Filter& filter) {
  Shares p(vocab);
  for (std::size_t i = 0; i < vocab; ++i)
    p[i] = std::exp(static_cast<double>(logits[i]) / filter.temperature);
  Shares sorted = p;
  std::sort(sorted.rbegin(), sorted.rend());
  const double kth = filter.top_k > 0 ? sorted[static_cast<std::size_t>(filter.top_k) - 1] : 0;
  for (double& x : p) x = x < filter.min_p * sorted[0] || x < kth ? 0 : x;
  std::vector<std::size_t> order(vocab);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return p[a] > p[b]; });
  const double all = std::accumulate(p.begin(), p.end(), 0.0);
  double before = 0;
  for (const std::size_t i : order) {
    const double own = p[i];
    if (before > 0 && before >= filter.top_p * all) p[i] = 0;
    before += own;
  }
  const double total = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& x : p) x /= total;
  return p;
}

// Whether x is where the answer may depend on rounding, and the token under it.
struct Found {
  int token = 0;
  bool is_sure = false;
};
Found token_at(const Shares& shares, double x) {
  constexpr double kNear = 1e-5;
  const double total = std::accumulate(shares.begin(), shares.end(), 0.0);
  double passed = 0;
  Found found;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    if (shares[i] <= 0) continue;
    found.token = static_cast<int>(i);
    const double before = passed;
    passed += shares[i];
    if (x * total >= passed) continue;
    found.is_sure = x * total - before > kNear && passed - x * total > kNear;
    break;
  }
  return found;
}

struct Rows {
  std::vector<std::uint64_t> seeds;
  std::vector<std::int64_t> positions;
  explicit Rows(int count) {
    for (int i = 0; i < count; ++i)
      seeds.push_back(static_cast<std::uint64_t>(i) * 7919 + 3), positions.push_back(5 + i % 3);
  }
  SamplingArgs args(OpRun& run, const Filter& filter) const {
    const std::size_t rows = seeds.size();
    const auto floats = [&](float x) { return run.upload(tensor_of(std::vector<float>(rows, x))); };
    SamplingArgs args;
    args.temperature = floats(filter.temperature);
    args.top_p = floats(filter.top_p);
    args.min_p = floats(filter.min_p);
    args.top_k = run.upload(tensor_of(std::vector<std::int32_t>(rows, filter.top_k)));
    args.seed = run.upload(tensor_of(seeds));
    args.position = run.upload(tensor_of(positions));
    return args;
  }
  double noise(int row, DraftNoise use) const {
    return draft_noise(seeds[static_cast<std::size_t>(row)],
                       positions[static_cast<std::size_t>(row)], use);
  }
};

DraftOps& draft_ops(OpRun& run) { return dynamic_cast<DraftOps&>(run.ops()); }

}  // namespace

TEST_CASE("drafts are drawn by the shares that they leave", "[ops][sampling]") {
  constexpr int kVocab = 700, kRows = 12;
  std::mt19937 rng(3);
  for (const Filter& filter : kFilters) {
    INFO("temperature " << filter.temperature << ", top_k " << filter.top_k << ", top_p "
                        << filter.top_p);
    HostTensor logits = random_tensor(rng, DType::f32, {kRows, kVocab}, 2.f);
    logits.set(7, logits.at(3));  // a tie
    logits.set(5 * kVocab + 9, -INFINITY);
    logits.set(6 * kVocab + 9, NAN);
    const Rows rows(kRows);
    std::vector<std::int32_t> places(kRows);
    for (int r = 0; r < kRows; ++r) places[static_cast<std::size_t>(r)] = r == 4 ? -1 : 2 * r + 1;
    for (OpBackend& backend : op_backends()) {
      INFO(backend.name);
      OpRun run(backend);
      const TensorView tokens = run.output(DType::i32, {kRows});
      const TensorView shares = run.output(DType::f32, {2 * kRows, kVocab});
      draft_ops(run).draw_drafts(tokens, shares, run.upload(logits), run.upload(tensor_of(places)),
                                 rows.args(run, filter), run.stream());
      const HostTensor got = run.download(tokens), kept = run.download(shares);
      int sure = 0;
      for (int r = 0; r < kRows; ++r) {
        const auto token = got.as<std::int32_t>()[r];
        const float* row = logits.as<float>() + r * kVocab;
        if (r == 6) {
          CHECK(token == kNoToken);
          CHECK(kept.at((2 * r + 1) * kVocab) == 1.f);
          CHECK(kept.at((2 * r + 1) * kVocab + 1) == 0.f);
          continue;
        }
        if (r == 4) {
          CHECK(token == std::max_element(row, row + kVocab) - row);
          continue;
        }
        const Shares want = shares_of(row, kVocab, filter);
        double worst = 0;
        for (int i = 0; i < kVocab; ++i)
          worst = std::max(worst, std::abs(kept.at((2 * r + 1) * kVocab + i) -
                                           want[static_cast<std::size_t>(i)]));
        CHECK(worst < 2e-5);
        const Found found = token_at(want, rows.noise(r, DraftNoise::draft));
        if (found.is_sure) CHECK(token == found.token);
        sure += found.is_sure;
      }
      CHECK(sure >= kRows - 4);
    }
  }
}

TEST_CASE("the best draft is the first of the largest", "[ops][sampling]") {
  HostTensor logits(DType::f32, {2, 1000});
  for (std::int64_t i = 0; i < logits.numel(); ++i) logits.set(i, -1.f);
  for (const int at : {417, 418, 1999}) logits.set(at, 2.f);
  for (OpBackend& backend : op_backends()) {
    INFO(backend.name);
    OpRun run(backend);
    const TensorView tokens = run.output(DType::i32, {2});
    draft_ops(run).draw_drafts(tokens, run.output(DType::f32, {1, 1000}), run.upload(logits),
                               run.upload(tensor_of(std::vector<std::int32_t>{0, 0})),
                               Rows(2).args(run, {.temperature = 0}), run.stream());
    const HostTensor got = run.download(tokens);
    CHECK(got.as<std::int32_t>()[0] == 417);
    CHECK(got.as<std::int32_t>()[1] == 999);
  }
}

// The draft's vocabulary is some of the target's tokens, in another order.
TEST_CASE("a draft is kept or replaced as its shares and the target's say", "[ops][sampling]") {
  constexpr int kVocab = 300, kOwn = 120, kRows = 40, kDrafts = 36;
  const bool maps = GENERATE(false, true);
  constexpr int kAll[] = {kVocab, kOwn};
  const int own_vocab = kAll[maps];
  std::mt19937 rng(11);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(kVocab));
  std::iota(ids.begin(), ids.end(), 0);
  if (maps) std::shuffle(ids.begin(), ids.end(), rng);
  ids.resize(static_cast<std::size_t>(own_vocab));
  for (const Filter& filter : kFilters) {
    INFO("temperature " << filter.temperature << ", top_k " << filter.top_k << ", top_p "
                        << filter.top_p);
    HostTensor logits = random_tensor(rng, DType::f32, {kRows, kVocab}, 2.f);
    const HostTensor own = random_tensor(rng, DType::f32, {kDrafts, own_vocab}, 2.f);
    const Rows rows(kRows);
    std::vector<std::int32_t> verified, drafts, places;
    HostTensor shares(DType::f32, {kDrafts, own_vocab});
    std::vector<Shares> drafted;
    for (int i = 0; i < kDrafts; ++i) {
      const int r = i < 20 ? i : i + 4, place = kDrafts - 1 - i;
      const Shares q =
          shares_of(own.as<float>() + i * own_vocab, static_cast<std::size_t>(own_vocab), filter);
      drafted.emplace_back(kVocab, 0.0);
      for (int k = 0; k < own_vocab; ++k) {
        const auto at = static_cast<std::size_t>(k);
        shares.set(place * own_vocab + k, static_cast<float>(q[at]));
        drafted.back()[static_cast<std::size_t>(ids[at])] = q[at];
      }
      verified.push_back(r);
      places.push_back(place);
      drafts.push_back(
          ids[static_cast<std::size_t>(token_at(q, rows.noise(r, DraftNoise::draft)).token)]);
      if (i % 3 == 0)  // as the target would have it
        for (int k = 0; k < own_vocab; ++k)
          logits.set(r * kVocab + ids[static_cast<std::size_t>(k)], own.at(i * own_vocab + k));
    }
    logits.set(verified.back() * kVocab + 2, NAN);
    for (OpBackend& backend : op_backends()) {
      INFO(backend.name);
      OpRun run(backend);
      const TensorView all = run.upload(logits);
      draft_ops(run).verify_drafts(
          all,
          {.rows = run.upload(tensor_of(verified)),
           .drafts = run.upload(tensor_of(drafts)),
           .places = run.upload(tensor_of(places)),
           .shares = run.upload(shares),
           .target_ids = maps ? run.upload(tensor_of(ids, {own_vocab, 1})) : TensorView(),
           .sampling = rows.args(run, filter)},
          run.stream());
      const HostTensor got = run.download(all);
      const std::set<std::int32_t> listed(verified.begin(), verified.end());
      for (int r = 0; r < kRows; ++r)
        if (!listed.contains(r)) CHECK(got.at(r * kVocab + 5) == logits.at(r * kVocab + 5));
      CHECK(std::isnan(got.at(verified.back() * kVocab + 2)));
      int kept = 0, replaced = 0;
      for (int i = 0; i + 1 < kDrafts; ++i) {
        const auto at = static_cast<std::size_t>(i);
        const int r = verified[at], draft = drafts[at];
        const Shares p =
            shares_of(logits.as<float>() + r * kVocab, static_cast<std::size_t>(kVocab), filter);
        const Shares& q = drafted[at];
        const auto of_draft = static_cast<std::size_t>(draft);
        const double left = rows.noise(r, DraftNoise::keep) * q[of_draft];
        int outcome = -1, allowed = 0;
        for (int t = 0; t < kVocab; ++t) {
          const float x = got.at(r * kVocab + t);
          if (x == -INFINITY) continue;
          CHECK(x == 0.f);
          outcome = t;
          ++allowed;
        }
        CHECK(allowed == 1);
        if (std::abs(left - p[of_draft]) < 1e-5) continue;
        if (left < p[of_draft]) {
          CHECK(outcome == draft);
          ++kept;
          continue;
        }
        Shares rest(static_cast<std::size_t>(kVocab));
        for (std::size_t t = 0; t < rest.size(); ++t) rest[t] = std::max(p[t] - q[t], 0.0);
        const Found found = token_at(rest, rows.noise(r, DraftNoise::replace));
        if (found.is_sure) CHECK(outcome == found.token);
        ++replaced;
      }
      CHECK(kept >= 1);
      CHECK(replaced >= 1);
    }
  }
}

// Of four lines: all hold, the first alone does, none was drawn, and what cannot be drawn never
// holds.
TEST_CASE("drafts hold while they are what was drawn", "[ops][sampling]") {
  using Ints = std::vector<std::int32_t>;
  const Ints tokens = {50, 7, 8, 51, 9, 9, 9, 60, 61, 52, kNoToken};
  const Ints draws = {7, 8, 30, 9, 5, 9, 31, kNoToken, 32};
  const Ints num_drafts = {2, 3, 0, 1}, first_draft = {1, 4, 8, 10};
  const Ints first_draw = {0, 3, -1, 7}, first_next = {2, 6, 1, 11};
  const Ints at = {0, 13, 14, 15, 1, 16, 17}, line = {0, 0, 1, 3, 2, 1, -1};
  Ints numbers(18);
  std::iota(numbers.begin(), numbers.end(), 100);
  const Ints expected = {100, 101, 7,  8,  30,  105, 9,   5,   9,
                         31,  110, -1, 32, 113, 112, 114, 114, 117};
  for (OpBackend& backend : op_backends()) {
    INFO(backend.name);
    OpRun run(backend);
    const auto upload = [&](const Ints& values) { return run.upload(tensor_of(values)); };
    const TensorView out = upload(numbers), lost = upload({-1, -1, -1, -1});
    draft_ops(run).settle_drafts({.draws = upload(draws),
                                  .tokens = upload(tokens),
                                  .num_drafts = upload(num_drafts),
                                  .first_draft = upload(first_draft),
                                  .first_draw = upload(first_draw),
                                  .first_next = upload(first_next),
                                  .numbers = out,
                                  .at = upload(at),
                                  .line = upload(line),
                                  .lost = lost},
                                 run.stream());
    const HostTensor got = run.download(out), got_lost = run.download(lost);
    for (std::size_t i = 0; i < 4; ++i)
      CHECK(got_lost.as<std::int32_t>()[i] == Ints{0, 2, 0, 1}[i]);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      INFO(i);
      CHECK(got.as<std::int32_t>()[i] == expected[i]);
    }
  }
}

// As a step that follows drafts is corrected: nothing is copied, and what else depends on the
// counts follows later.
TEST_CASE("numbers lag by what was lost", "[ops][sampling]") {
  using Ints = std::vector<std::int32_t>;
  for (OpBackend& backend : op_backends()) {
    INFO(backend.name);
    OpRun run(backend);
    const auto upload = [&](const Ints& values) { return run.upload(tensor_of(values)); };
    const TensorView first = upload({10, 20, 30, 40}), later = upload({50, 0, 60, 0, 70, 0});
    const TensorView lost = upload({9, 9, 9});
    draft_ops(run).settle_drafts({.draws = upload({4, 5, 6, 1, 2}),
                                  .tokens = upload({3, 4, 7, 3, 1}),
                                  .num_drafts = upload({2, 0, 1}),
                                  .first_draft = upload({1, 0, 4}),
                                  .first_draw = upload({0, -1, 3}),
                                  .first_next = {},
                                  .numbers = first,
                                  .at = upload({0, 1, 3}),
                                  .line = upload({0, 1, 2}),
                                  .lost = lost},
                                 run.stream());
    draft_ops(run).lag_numbers(later, upload({0, 4, 2}), upload({0, 2, -1}), lost, run.stream());
    const HostTensor got = run.download(first), got_later = run.download(later);
    for (std::size_t i = 0; i < 4; ++i) CHECK(got.as<std::int32_t>()[i] == Ints{9, 20, 30, 40}[i]);
    for (std::size_t i = 0; i < 6; ++i)
      CHECK(got_later.as<std::int32_t>()[i] == Ints{49, 0, 60, 0, 70, 0}[i]);
  }
}

}  // namespace quire::test
