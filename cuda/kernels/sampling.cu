// Draws: temperature, then min_p and top_k as a threshold, then top_p over what is left, then the
// largest logit plus Gumbel noise of (seed, position, token). Memory bound: the logits are read
// once, by as many blocks as there is room for, which also draw where top_k is off; a block a row
// then sees to the filters, of which it reads the groups of tokens that can pass.

#include "backend/no_token.h"
#include "cuda/kernels/draws.h"
#include "cuda/kernels/launchers.h"
#include "cuda/kernels/row_candidates.cuh"
#include "cuda/runtime/capability.h"
#include "cuda/runtime/check.h"

namespace quire::cuda {
namespace {

struct SampleParams {
  Summaries rows;
  std::int32_t* tokens;
  const float *temperature, *top_p, *min_p;
  const std::int32_t* top_k;
  const std::uint64_t* seed;
  const std::int64_t* position;
};

// How a row is to be drawn.
struct RowDraw {
  float factor, top_p, min_p;
  int top_k;  // 0: off
  bool greedy;
  Race race;

  __device__ __forceinline__ RowDraw(const SampleParams& p, int r)
      : factor(p.temperature[r] > 0.f ? 1.f / p.temperature[r] : 1.f),
        top_p(p.top_p[r]),
        min_p(p.min_p[r]),
        top_k(p.top_k[r] < p.rows.vocab ? max(p.top_k[r], 0) : 0),
        greedy(p.temperature[r] <= 0.f),
        race{p.seed[r], p.position[r], factor} {}
  __device__ __forceinline__ bool unfiltered() const {
    return greedy || (top_k == 0 && top_p >= 1.f && min_p <= 0.f);
  }
};

// Grid (blocks of a row, rows).
__global__ void __launch_bounds__(kSummaryThreads)
    summarize_logits_kernel(const __grid_constant__ SampleParams p) {
  release_next_kernel();
  await_previous_kernel();
  const RowDraw draw(p, static_cast<int>(blockIdx.y));
  const RowWork work{.races = !draw.greedy && draw.top_k == 0,
                     .masses = !draw.greedy && draw.top_k == 0 && draw.top_p < 1.f,
                     .greedy = draw.greedy,
                     .factor = draw.factor};
  summarize_row(p.rows, work, draw.race);
}

// A place in the order of the vocabulary by probability; the larger value, of equal ones the
// smaller token comes first.
__device__ __forceinline__ bool precedes(float value, int token, const Best& other) {
  return value > other.value || (value == other.value && token < other.token);
}

// Between two calls all threads meet: parts is used again.
__device__ Best block_best(Best mine) {
  SHARED(parts, Best[kCandidateThreads / 32]);
  mine = warp_best(mine);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = mine;
  __syncthreads();
  Best best = parts[0];
  for (int i = 1; i < kCandidateThreads / 32; ++i) best = better(best, parts[i]);
  return best;
}

// The row as its segments have it. Sums are made in one order.
struct RowResult {
  bool is_number;
  float top;   // scaled
  float mass;  // Σ e^(scaled − top)
  Best winner;
};
__device__ RowResult result_of(const Summaries& s, int r, const RowDraw& draw) {
  const RowSegment* segment = s.segment + static_cast<std::int64_t>(r) * s.segments;
  float top = -INFINITY, mass = 0.f;
  Best best = kNobody;
  for (int i = threadIdx.x; i < s.segments; i += kCandidateThreads) {
    top = fmaxf(top, segment[i].top);
    best = better(best, segment[i].winner);
  }
  top = block_reduce<kCandidateThreads>(top, Max{});
  for (int i = threadIdx.x; i < s.segments && top > kLowest; i += kCandidateThreads) {
    mass += segment[i].mass * exp2_approximate((segment[i].top - top) * draw.factor * kToLog2);
  }
  mass = block_reduce<kCandidateThreads>(mass, Add{});
  best = block_best(best);
  // Noise of −inf, once in 2²⁵, on all that may be drawn: nobody.
  if (best.token == kNobody.token) best.token = 0;
  return {top < INFINITY, scaled_of(top, draw.factor), mass, best};
}

// The winner among what a source has from `threshold` on and before `limit` (kNobody: all), and
// within the first target of their mass. One that falls out of it had the wrong place, not the
// wrong noise: what comes behind it is out as well, and the next best is looked at.
template <class Source>
__device__ int draw_from(const Source& source, const RowDraw& draw, float top, float threshold,
                         Best limit, unsigned long long target) {
  for (;;) {
    Best best = kNobody;
    float value = 0.f;
    source.visit([&](float scaled, int token) {
      if (scaled < threshold || !precedes(scaled, token, limit)) return;
      if (scaled + kGumbelBound < best.value) return;
      const Best mine{scaled + gumbel_noise(draw.race.seed, draw.race.position, token), token};
      if (better(best, mine).token == token) {
        best = mine;
        value = scaled;
      }
    });
    const Best winner = block_best(best);
    if (winner.value == -INFINITY) return 0;
    if (target == ~0ull) return winner.token;
    SHARED(place, float);
    if (best.token == winner.token) place = value;
    __syncthreads();
    limit = {place, winner.token};
    unsigned long long before = 0;
    source.visit([&](float scaled, int token) {
      if (scaled >= threshold && precedes(scaled, token, limit)) before += mass_of(scaled, top);
    });
    if (block_total<kCandidateThreads>(before) < target) return winner.token;
  }
}

template <class Source>
__device__ int draw_from_all(const Source& source, const RowDraw& draw, float top,
                             float threshold) {
  if (draw.top_p >= 1.f) return draw_from(source, draw, top, threshold, kNobody, ~0ull);
  unsigned long long mass = 0;
  source.visit([&](float scaled, int) { mass += scaled >= threshold ? mass_of(scaled, top) : 0; });
  const auto target = nucleus(block_total<kCandidateThreads>(mass), draw.top_p);
  return draw_from(source, draw, top, threshold, kNobody, target);
}

// top_k: only the groups that hold the k largest are read again.
__device__ int draw_largest(const Summaries& s, int r, const RowDraw& draw, float top,
                            float threshold, const Candidates& list) {
  const float bound = fmaxf(threshold, bound_of_largest(s, r, draw.factor, draw.top_k));
  const int count = gather(s, r, draw.factor, bound, list, [](float, int) {});
  const auto finish = [&](const auto& source) {
    const float reached = reached_by_largest<kCandidateThreads>(draw.top_k, [&](const auto& take) {
      source.visit([&](float scaled, int) { take(scaled); });
    });
    return draw_from_all(source, draw, top, fmaxf(threshold, reached));
  };
  if (count > kMaxCandidates) return finish(WholeRow{s.row(r), s.vocab, draw.factor});
  return finish(CandidateList{list.value, list.token, count});
}

// Without top_k the row has been drawn from already: if who won is within the limits it stays.
// Otherwise all who are come before it, and they are listed by then.
__device__ int draw_within(const Summaries& s, int r, const RowDraw& draw, const RowResult& row,
                           float threshold, const Candidates& list) {
  const float won = scaled_of(s.row(r)[row.winner.token], draw.factor);
  if (draw.top_p >= 1.f && won >= threshold) return row.winner.token;
  const bool whole = draw.min_p <= 0.f;  // the mass of all that may be drawn is known
  const Best limit = won >= threshold ? Best{won, row.winner.token} : kNobody;
  unsigned long long before = 0, mass = 0;
  const int count = gather(s, r, draw.factor, whole ? fmaxf(won, threshold) : threshold, list,
                           [&](float scaled, int token) {
                             const unsigned long long mine = mass_of(scaled, row.top);
                             mass += mine;
                             before += precedes(scaled, token, limit) ? mine : 0;
                           });
  unsigned long long target = ~0ull;
  if (draw.top_p < 1.f) {
    mass = block_total<kCandidateThreads>(mass);
    if (whole) mass = static_cast<unsigned long long>(row.mass / kMassUnit);
    target = nucleus(mass, draw.top_p);
    if (won >= threshold && block_total<kCandidateThreads>(before) < target) return limit.token;
  }
  if (count > kMaxCandidates) {
    const WholeRow all{s.row(r), s.vocab, draw.factor};
    return draw_from(all, draw, row.top, threshold, limit, target);
  }
  return draw_from(CandidateList{list.value, list.token, count}, draw, row.top, threshold, limit,
                   target);
}

// A block a row.
__global__ void __launch_bounds__(kCandidateThreads)
    draw_kernel(const __grid_constant__ SampleParams p) {
  release_next_kernel();
  await_previous_kernel();
  DYN_SHARED(memory, float);
  const Candidates list(memory);
  const int r = static_cast<int>(blockIdx.x);
  const RowDraw draw(p, r);
  const RowResult row = result_of(p.rows, r, draw);
  int token = 0;
  if (!row.is_number) {
    token = kNoToken;
  } else if (row.top < kLowest) {  // nothing is allowed
    token = 0;
  } else if (draw.unfiltered()) {
    token = row.winner.token;
  } else {
    float threshold = kLowest;
    if (draw.min_p > 0.f) threshold = fmaxf(threshold, row.top + logf(draw.min_p));
    token = draw.top_k > 0 ? draw_largest(p.rows, r, draw, row.top, threshold, list)
                           : draw_within(p.rows, r, draw, row, threshold, list);
  }
  if (threadIdx.x == 0) p.tokens[r] = token;
}

}  // namespace

void sample(TensorView tokens, TensorView logits, const SamplingArgs& args, SplitScratch scratch,
            StreamRef stream) {
  const std::int64_t rows = logits.extent(0);
  const std::int64_t most = scratch.floats / Summaries::floats_of_row(logits.extent(1));
  for (std::int64_t first = 0; first < rows; first += most) {
    const std::int64_t last = std::min(rows, first + most);
    const auto of = [&]<class T>(Type<T>, const TensorView& tensor) {
      return static_cast<T*>(tensor.data()) + first;
    };
    const SampleParams p{.rows = Summaries(logits.rows(first, last), scratch.data),
                         .tokens = of(Type<std::int32_t>{}, tokens),
                         .temperature = of(Type<const float>{}, args.temperature),
                         .top_p = of(Type<const float>{}, args.top_p),
                         .min_p = of(Type<const float>{}, args.min_p),
                         .top_k = of(Type<const std::int32_t>{}, args.top_k),
                         .seed = of(Type<const std::uint64_t>{}, args.seed),
                         .position = of(Type<const std::int64_t>{}, args.position)};
    CUDA_CHECK(launch(summarize_logits_kernel,
                      summary_grid(p.rows, last - first, processor_count()), dim3(kSummaryThreads),
                      0, native(stream), p));
    CUDA_CHECK(launch(draw_kernel, dim3(static_cast<unsigned>(last - first)),
                      dim3(kCandidateThreads), Candidates::bytes(p.rows), native(stream), p));
  }
}

}  // namespace quire::cuda
