// Prompts over an fp8 cache on warpgroups: what their rows see is widened into the workspace, and
// attended to there. A step that sees more than it has room for goes in rounds, each of some
// requests and some KV heads; no request's keys are cut for it.
//
// The host chooses, so it must know the rows: steps in graphs, and those whose bits must not follow
// the batch, stay with attention_mma.

#include <limits>

#include "cuda/kernels/attention.h"
#include "cuda/runtime/capability.h"
#include "cuda/widened_scratch.h"

namespace quire::cuda {
namespace {

constexpr int kAll = std::numeric_limits<int>::max();
// Of a request: as many as one block of attention_mma has for a KV head. By count such blocks take
// less than widening where they are more than four for three multiprocessors
// (tests/perf/cuda_model.py: 22 requests with 8 KV heads); fewer leave the device idle, and with
// more rows each reads and widens the keys again.
constexpr int kFewRows = 64;

class Step {
 public:
  explicit Step(const AttentionArgs& args)
      : args_(args),
        group_(static_cast<int>(args.q.extent(1) / args.k_cache.extent(2))),
        kv_heads_(static_cast<int>(args.k_cache.extent(2))),
        dim_(args.k_cache.extent(3)),
        room_(static_cast<std::int64_t>(args.workspace.bytes()) / widened_page_bytes(dim_)) {}

  int requests() const { return static_cast<int>(args_.seq_lens.extent(0)); }
  int rows_of(int request) const {
    const auto at = static_cast<std::size_t>(request);
    return (args_.host_rows.query_start[at + 1] - args_.host_rows.query_start[at]) * group_;
  }
  // Of one KV head. A window's keys begin anywhere in a page.
  std::int64_t pages_of(int request) const {
    const std::int64_t keys = args_.host_rows.seq_lens[static_cast<std::size_t>(request)],
                       all = widened_pages(keys);
    if (args_.window == 0) return all;
    return std::min(all, widened_pages(args_.window + rows_of(request) / group_ - 1) + 1);
  }

  // Requests of more rows are widened; kAll: none is.
  int most_rows() const {
    std::int64_t few = 0, many = 0, longest = 0, pages = 0;
    for (int r = 0; r < requests(); ++r) {
      if (rows_of(r) <= kMmaDecodeRows) continue;
      ++(rows_of(r) <= kFewRows ? few : many);
      longest = std::max(longest, pages_of(r));
      pages += pages_of(r);
    }
    // Of a single page, attention_mma has it before it is widened.
    if (pages <= 1 || longest > room_) return kAll;
    const bool fills = 3 * few * kv_heads_ > 4 * std::int64_t{processor_count()};
    return !fills ? kMmaDecodeRows : many > 0 ? kFewRows : kAll;
  }

  // From `request` on, as many as there is room and are places for.
  WidenedRequests next(int& request, int most_rows) const {
    WidenedRequests some;
    for (; request < requests() && some.count < kWidenedRequests; ++request) {
      if (rows_of(request) <= most_rows) continue;
      const std::int64_t pages = pages_of(request);
      if (some.pages + pages > room_) break;
      some.at[some.count++] = {request, static_cast<std::int32_t>(some.pages)};
      some.pages += pages;
      some.units += (rows_of(request) + kWidenedRows - 1) / kWidenedRows;
    }
    return some;
  }
  // Rounds of about equally many.
  int heads_of_round(const WidenedRequests& some) const {
    const auto fit = static_cast<int>(std::min<std::int64_t>(kv_heads_, room_ / some.pages)),
               rounds = (kv_heads_ + fit - 1) / fit;
    return (kv_heads_ + rounds - 1) / rounds;
  }

  // The step of these KV heads.
  AttentionArgs of_heads(int begin, int end) const {
    AttentionArgs args = args_;
    args.q = args_.q.narrow(1, begin * group_, end * group_);
    args.out = args_.out.narrow(1, begin * group_, end * group_);
    args.k_cache = args_.k_cache.narrow(2, begin, end);
    args.v_cache = args_.v_cache.narrow(2, begin, end);
    if (!args_.sinks.empty()) args.sinks = args_.sinks.rows(begin * group_, end * group_);
    return args;
  }
  // With the widened pages for a cache.
  AttentionArgs widened(AttentionArgs args, std::int64_t pages) const {
    const std::int64_t heads = args.k_cache.extent(2);
    const TensorView both(args_.workspace.data(), args_.q.dtype(),
                          {2, pages, kWidenedKeys, heads, dim_});
    const auto half = [&](std::int64_t i) {
      return both.rows(i, i + 1).reshape({pages, kWidenedKeys, heads, dim_});
    };
    args.k_cache = half(0);
    args.v_cache = half(1);
    return args;
  }

 private:
  const AttentionArgs& args_;
  int group_, kv_heads_;
  std::int64_t dim_, room_;  // pages of a head
};

}  // namespace

int widened_attention(const AttentionArgs& args, SplitScratch scratch, StreamRef stream) {
  if (args.host_rows.seq_lens.empty() || args.workspace.empty() ||
      args.k_cache.dtype() != DType::fp8_e4m3)
    return kAll;
  const Step step(args);
  if (!attention_wgmma_supports(step.widened(args, 1))) return kAll;
  const int most = step.most_rows(), kv_heads = static_cast<int>(args.k_cache.extent(2));
  for (int request = 0; most != kAll && request < step.requests();) {
    const WidenedRequests some = step.next(request, most);
    if (some.count == 0) break;
    const int heads = step.heads_of_round(some);
    for (int head = 0; head < kv_heads; head += heads) {
      const AttentionArgs own = step.of_heads(head, std::min(kv_heads, head + heads));
      const AttentionArgs wide = step.widened(own, some.pages);
      attention_widen(wide.k_cache, wide.v_cache, own, some, stream);
      attention_wgmma(wide, most + 1, scratch, stream, some);
    }
  }
  return most;
}

}  // namespace quire::cuda
