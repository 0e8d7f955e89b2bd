#include "engine/scheduler/chunk_pacer.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace quire {
namespace {

double attended_by(int num_computed, int num_tokens) {
  return num_tokens * (num_computed + num_tokens / 2.0);
}

bool is_prompt(const BatchRow& row) { return !row.samples || row.num_tokens > 1 + row.num_drafts; }

}  // namespace

void ChunkPacer::begin(int num_decoding) {
  num_decoding_ = num_decoding;
  num_prompt_ = 0;
  attended_ = 0;
  choice_ = offered_ = ChunkChoice::free;
}

double ChunkPacer::cost(int num_tokens, double attended) const {
  return slack_ * speed_ * (steps_.at_most(num_tokens) + per_context_ * attended);
}

bool ChunkPacer::is_full() const { return choice_ == ChunkChoice::cut || choice_ == ChunkChoice::least; }

int ChunkPacer::within(int num_computed, int wanted) {
  if (!is_bound() || wanted <= 0) return wanted;
  const int before = num_decoding_ + num_prompt_;
  const auto fits = [&](int num_tokens) {
    return cost(before + num_tokens, attended_ + attended_by(num_computed, num_tokens)) <=
           options_.target;
  };
  // `wanted` is within the budget; what is left of it for a step's least, nobody is to take away.
  const int due = std::min(std::max(options_.least - num_prompt_, 0), wanted);
  const int most = std::clamp(options_.most - before, due, wanted);
  int fitting = most;
  if (!fits(most)) {
    int beyond = most;
    for (fitting = 0; beyond - fitting > 1;) {
      const int middle = fitting + (beyond - fitting) / 2;
      (fits(middle) ? fitting : beyond) = middle;
    }
  }
  const int least = std::min(due, most);
  offered_ = fitting == most   ? ChunkChoice::whole
             : fitting > least ? ChunkChoice::cut
                               : ChunkChoice::least;
  return std::max(fitting, least);
}

void ChunkPacer::take(int num_computed, int num_tokens) {
  choice_ = std::max(choice_, offered_);
  num_prompt_ += num_tokens;
  attended_ += attended_by(num_computed, num_tokens);
}

void ChunkPacer::settle(const BatchPlan& plan, double seconds) {
  if (options_.target <= 0) return;
  int num_prompt = 0;
  double attended = 0;
  for (const BatchRow& row : plan.rows) {
    if (!is_prompt(row)) continue;
    num_prompt += row.num_tokens;
    attended += attended_by(row.num_computed, row.num_tokens);
  }
  const bool is_awaited = num_prompt < plan.num_tokens;
  stats_.late_steps += is_awaited && seconds > options_.target;
  if (is_awaited && num_prompt > 0) stats_.chunk_tokens = num_prompt;
  stats_.whole_steps += plan.chunk == ChunkChoice::whole;
  stats_.cut_steps += plan.chunk == ChunkChoice::cut;
  stats_.least_steps += plan.chunk == ChunkChoice::least;
  if (plan.chunk != ChunkChoice::free) follow(plan.chunk, seconds / options_.target);
  const double expected = steps_.at(plan.num_tokens) + per_context_ * attended;
  if (expected > 0 && steps_.spans(plan.num_tokens)) follow_speed(seconds / expected);
  const double usual = seconds / speed_;
  if (num_prompt > 0) learn_context(plan.num_tokens, attended, usual);
  constexpr double kOwn = 0.25;  // at least, whatever contexts seem to take
  steps_.add(plan.num_tokens, std::max(usual - per_context_ * attended, kOwn * usual));
}

// One in a hundred of those that were expected to keep the bound may miss it. But where all that
// had to be cut have long had time to spare, larger ones are tried: nothing else would find out.
void ChunkPacer::follow(ChunkChoice choice, double share) {
  constexpr double kMore = 1.1, kLess = 0.999, kLeast = 0.7, kMost = 2;
  constexpr double kSpare = 0.8, kMuchLess = 0.97, kLong = 0.993, kWorst = 1.2;
  double change = kLess;
  if (share > 1 && choice != ChunkChoice::least) change = kMore;
  if (choice != ChunkChoice::whole) {
    worst_ = std::max(std::min(share, kWorst), kLong * worst_);
    if (worst_ < kSpare) change = kMuchLess;
  }
  slack_ = std::clamp(slack_ * change, kLeast, kMost);
}

// Whatever else a machine does makes steps of all sizes slower alike, also of those that have not
// run for long: the table has them as on a machine without.
void ChunkPacer::follow_speed(double share) {
  constexpr double kMost = 16;
  constexpr int kSome = 3;
  shares_[static_cast<std::size_t>(num_shares_++ % kRecent)] = share;
  if (num_shares_ < kSome) return;
  std::array<double, kRecent> sorted = shares_;
  const auto num = static_cast<std::ptrdiff_t>(std::min<std::int64_t>(num_shares_, kRecent));
  const auto low = sorted.begin() + (num - 1) / 3;
  std::nth_element(sorted.begin(), low, sorted.begin() + num);
  speed_ = std::clamp(*low, 1 / kMost, kMost);
}

void ChunkPacer::learn(int num_tokens, double seconds) {
  constexpr int kCertain = 3;  // as if it were measured so often
  for (int i = 0; i < kCertain; ++i) steps_.add(num_tokens, seconds);
}

// Steps of one size differ by how far back their tokens look: the line through them, over all sizes.
void ChunkPacer::learn_context(int num_tokens, double attended, double seconds) {
  constexpr double kMemory = 32, kKept = 0.998;
  const auto size = static_cast<std::size_t>(std::clamp(
      static_cast<int>(std::log2(std::max(num_tokens, 1)) * kPerDoubling), 0, kSizes - 1));
  Usual& usual = usual_[size];
  const double context = attended / num_tokens - usual.context;
  const double token = seconds / num_tokens - usual.seconds;
  const double share = 1 / std::min(static_cast<double>(++usual.count), kMemory);
  usual.context += context * share;
  usual.seconds += token * share;
  if (usual.count == 1) return;
  spread_ = kKept * spread_ + context * context * num_tokens;
  rise_ = kKept * rise_ + context * token * num_tokens;
  if (spread_ > 0) per_context_ = std::max(rise_ / spread_, 0.0);
}

}  // namespace quire
