// Rejection sampling of drafts (backend/draft_ops.h). A block a row, in a few passes over it: what
// the filters leave is found bit by bit, as the k largest are. Masses are integers, whose sums have
// no order: a row's bits depend on nothing but the row.

#include "backend/no_token.h"
#include "cuda/kernels/draws.h"
#include "cuda/kernels/launchers.h"
#include "cuda/kernels/row_candidates.cuh"
#include "cuda/runtime/check.h"

namespace quire::cuda {
namespace {

constexpr int kThreads = kCandidateThreads;
using Mass = unsigned long long;

struct DrawArgs {
  const float *temperature, *top_p, *min_p;
  const std::int32_t* top_k;
  const std::uint64_t* seed;
  const std::int64_t* position;

  explicit DrawArgs(const SamplingArgs& args)
      : temperature(static_cast<const float*>(args.temperature.data())),
        top_p(static_cast<const float*>(args.top_p.data())),
        min_p(static_cast<const float*>(args.min_p.data())),
        top_k(static_cast<const std::int32_t*>(args.top_k.data())),
        seed(static_cast<const std::uint64_t*>(args.seed.data())),
        position(static_cast<const std::int64_t*>(args.position.data())) {}
  __device__ double noise(int r, DraftNoise use) const {
    return draft_noise(seed[r], position[r], use);
  }
};

// The entries that the filters leave.
struct Kept {
  float threshold;    // scaled, from here on
  std::uint32_t key;  // of the least of them
  int limit;          // before which tokens of that key are among them
  Mass total;
  __device__ bool has(float scaled, int token) const {
    const std::uint32_t own = ordered_key(scaled);
    return scaled >= threshold && (own > key || (own == key && token < limit));
  }
};

// The smallest set of the largest that reaches `target`; of equal ones the smaller tokens.
__device__ Kept kept_of(const WholeRow& row, float top, float threshold, float top_p) {
  const auto sum = [&](const auto& counts) {
    Mass mine = 0;
    row.visit([&](float scaled, int token) {
      if (scaled >= threshold) mine += counts(ordered_key(scaled), mass_of(scaled, top), token);
    });
    return block_total<kThreads>(mine);
  };
  const Mass all = sum([](std::uint32_t, Mass mass, int) { return mass; });
  if (top_p >= 1.f) return {threshold, 0, 0, all};
  const Mass target = nucleus(all, top_p);
  std::uint32_t key = 0;
  for (std::uint32_t bit = 0x80000000u; bit != 0; bit >>= 1) {
    const std::uint32_t next = key | bit;
    if (sum([&](std::uint32_t own, Mass mass, int) { return own >= next ? mass : 0; }) >= target)
      key = next;
  }
  const Mass above = sum([&](std::uint32_t own, Mass mass, int) { return own > key ? mass : 0; });
  const Mass each = mass_of(key_value(key), top);
  const Mass ties = (target - above + each - 1) / each;
  int limit = 0;
  for (int bit = 1 << 30; bit != 0; bit >>= 1) {
    const int next = limit | bit;
    if (sum([&](std::uint32_t own, Mass, int token) {
          return own == key && token < next ? Mass{1} : 0;
        }) <= ties)
      limit = next;
  }
  return {threshold, key, limit, above + ties * each};
}

// Each token's share of 1; out may be the row. False: its logits are no numbers.
__device__ bool write_shares(float* out, const float* logits, int vocab, const DrawArgs& args,
                             int r) {
  const float temperature = args.temperature[r];
  const WholeRow row{logits, vocab, 1.f / temperature};
  float mine = -INFINITY;
  int wrong = 0;
  row.visit([&](float scaled, int) {
    wrong |= !(scaled < INFINITY);
    mine = fmaxf(mine, scaled);
  });
  const float top = block_reduce<kThreads>(mine, Max{});
  if (block_total<kThreads>(wrong) != 0 || top <= kLowest) return false;
  float threshold = kLowest;
  if (args.min_p[r] > 0.f) threshold = fmaxf(threshold, top + logf(args.min_p[r]));
  if (const int k = args.top_k[r]; k > 0 && k < vocab)
    threshold = fmaxf(threshold, reached_by_largest<kThreads>(k, [&](const auto& take) {
                        row.visit([&](float scaled, int) { take(scaled); });
                      }));
  const Kept kept = kept_of(row, top, threshold, args.top_p[r]);
  row.visit([&](float scaled, int token) {
    out[token] = kept.has(scaled, token)
                     ? static_cast<float>(mass_of(scaled, top)) / static_cast<float>(kept.total)
                     : 0.f;
  });
  __syncthreads();
  return true;
}

// The token under which x of all shares is passed; −1: they are all 0.
__device__ int token_at(const float* shares, int vocab, double x) {
  SHARED(sums, Mass[kThreads]);
  SHARED(found, int);
  const auto mass = [&](int token) { return static_cast<Mass>(shares[token] / kMassUnit); };
  const int piece = (vocab + kThreads - 1) / kThreads;
  const int first = static_cast<int>(threadIdx.x) * piece, last = min(first + piece, vocab);
  Mass mine = 0;
  for (int token = first; token < last; ++token) mine += mass(token);
  sums[threadIdx.x] = mine;
  if (threadIdx.x == 0) found = -1;
  __syncthreads();
  Mass total = 0, before = 0;
  for (int i = 0; i < kThreads; ++i) {
    if (i == static_cast<int>(threadIdx.x)) before = total;
    total += sums[i];
  }
  const auto target = static_cast<Mass>(x * static_cast<double>(total));
  if (target >= before && target < before + mine) {
    int token = first;
    for (Mass passed = before + mass(token); passed <= target; passed += mass(token)) ++token;
    found = token;
  }
  __syncthreads();
  return found;
}

// The first of the largest; kNoToken: one is no number, or all are forbidden.
__device__ int best_of(const float* logits, int vocab) {
  const WholeRow row{logits, vocab, 1.f};
  float mine = -INFINITY;
  int wrong = 0;
  row.visit([&](float value, int) {
    wrong |= !(value < INFINITY);
    mine = fmaxf(mine, value);
  });
  const float top = block_reduce<kThreads>(mine, Max{});
  if (block_total<kThreads>(wrong) != 0 || top <= kLowest) return kNoToken;
  int first = vocab;
  row.visit([&](float value, int token) { first = value == top ? min(first, token) : first; });
  SHARED(firsts, int[kThreads]);
  firsts[threadIdx.x] = first;
  __syncthreads();
  for (int i = 0; i < kThreads; ++i) first = min(first, firsts[i]);
  return first;
}

struct DrawDrafts {
  const float* logits;
  std::int64_t row_stride;
  int vocab;
  std::int32_t* tokens;
  float* shares;
  std::int64_t share_stride;
  const std::int32_t* places;
  DrawArgs args;
};

// A block a row.
__global__ void __launch_bounds__(kThreads)
    draw_drafts_kernel(const __grid_constant__ DrawDrafts p) {
  release_next_kernel();
  await_previous_kernel();
  const int r = static_cast<int>(blockIdx.x);
  const float* row = p.logits + r * p.row_stride;
  int token = kNoToken;
  if (p.args.temperature[r] <= 0.f || p.places[r] < 0) {
    token = best_of(row, p.vocab);
  } else {
    float* shares = p.shares + p.places[r] * p.share_stride;
    if (write_shares(shares, row, p.vocab, p.args, r)) {
      token = token_at(shares, p.vocab, p.args.noise(r, DraftNoise::draft));
    } else {
      for (int i = threadIdx.x; i < p.vocab; i += kThreads) shares[i] = i == 0 ? 1.f : 0.f;
    }
  }
  if (threadIdx.x == 0) p.tokens[r] = token;
}

struct VerifyDrafts {
  float* logits;
  std::int64_t row_stride;
  int vocab, draft_vocab;
  const std::int32_t *rows, *drafts, *places, *target_ids;  // of these null: the same tokens
  const float* shares;
  std::int64_t share_stride;
  DrawArgs args;
};

// A block a draft.
__global__ void __launch_bounds__(kThreads)
    verify_drafts_kernel(const __grid_constant__ VerifyDrafts p) {
  release_next_kernel();
  await_previous_kernel();
  const int r = p.rows[blockIdx.x], draft = p.drafts[blockIdx.x];
  float* row = p.logits + r * p.row_stride;
  const float* drafted = p.shares + p.places[blockIdx.x] * p.share_stride;
  const auto target_of = [&](int own) { return p.target_ids == nullptr ? own : p.target_ids[own]; };
  if (!write_shares(row, row, p.vocab, p.args, r)) return;
  SHARED(drawn_by, float);  // the draft's share
  if (threadIdx.x == 0) drawn_by = 0.f;
  __syncthreads();
  for (int own = threadIdx.x; own < p.draft_vocab; own += kThreads)
    if (target_of(own) == draft) drawn_by = drafted[own];
  __syncthreads();
  int outcome = draft;
  if (p.args.noise(r, DraftNoise::keep) * drawn_by >= row[draft]) {
    __syncthreads();
    for (int own = threadIdx.x; own < p.draft_vocab; own += kThreads) {
      float& rest = row[target_of(own)];
      rest = fmaxf(rest - drafted[own], 0.f);
    }
    __syncthreads();
    // Equal up to rounding: then hardly anything is rejected.
    const int other = token_at(row, p.vocab, p.args.noise(r, DraftNoise::replace));
    if (other >= 0) outcome = other;
  }
  __syncthreads();
  for (int token = threadIdx.x; token < p.vocab; token += kThreads)
    row[token] = token == outcome ? 0.f : -INFINITY;
}

}  // namespace

void draw_drafts(TensorView tokens, TensorView shares, TensorView logits, TensorView places,
                 const SamplingArgs& args, StreamRef stream) {
  const DrawDrafts p{.logits = static_cast<const float*>(logits.data()),
                     .row_stride = logits.stride(0),
                     .vocab = static_cast<int>(logits.extent(1)),
                     .tokens = static_cast<std::int32_t*>(tokens.data()),
                     .shares = static_cast<float*>(shares.data()),
                     .share_stride = shares.stride(0),
                     .places = static_cast<const std::int32_t*>(places.data()),
                     .args = DrawArgs(args)};
  CUDA_CHECK(launch(draw_drafts_kernel, dim3(static_cast<unsigned>(logits.extent(0))),
                    dim3(kThreads), 0, native(stream), p));
}

void verify_drafts(TensorView logits, const VerifyArgs& args, StreamRef stream) {
  const auto ints = [](const TensorView& values) {
    return values.empty() ? nullptr : static_cast<const std::int32_t*>(values.data());
  };
  const VerifyDrafts p{.logits = static_cast<float*>(logits.data()),
                       .row_stride = logits.stride(0),
                       .vocab = static_cast<int>(logits.extent(1)),
                       .draft_vocab = static_cast<int>(args.shares.extent(1)),
                       .rows = ints(args.rows),
                       .drafts = ints(args.drafts),
                       .places = ints(args.places),
                       .target_ids = ints(args.target_ids),
                       .shares = static_cast<const float*>(args.shares.data()),
                       .share_stride = args.shares.stride(0),
                       .args = DrawArgs(args.sampling)};
  CUDA_CHECK(launch(verify_drafts_kernel, dim3(static_cast<unsigned>(args.rows.extent(0))),
                    dim3(kThreads), 0, native(stream), p));
}

}  // namespace quire::cuda
