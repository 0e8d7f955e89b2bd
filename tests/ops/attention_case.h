#pragma once
// One attention case: ragged requests over a paged cache whose blocks lie in random order, and the
// plain loop that says what should come out.

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "tests/support/op_test.h"

namespace quire::test {

struct AttentionRequest {
  std::int64_t cached, fresh;  // tokens
};

struct AttentionCase {
  const char* name;
  DType q_dtype, cache_dtype;
  std::int64_t heads, kv_heads, head_dim, value_dim, block_size;
  int window;
  float soft_cap;
  bool sinks;
  std::vector<AttentionRequest> requests;
  CacheScale scale = {};
  int range =
      0;  // queries of odd heads are 2^range times larger, others smaller, scores for the odd
};

// So many short requests with one among them.
inline std::vector<AttentionRequest> one_among(std::size_t others, AttentionRequest one) {
  std::vector<AttentionRequest> all(others + 1, {2, 1});
  all[others / 2] = one;
  return all;
}

// Requests with the same first keys.
struct SharedKeys {
  std::vector<std::int32_t> requests;
  std::int64_t keys;
};

class AttentionData {
 public:
  AttentionData(const AttentionCase& c, unsigned seed, bool shared_cache = false)
      : c_(c), rng_(seed) {
    std::int64_t tokens = 0, blocks = 1;
    for (const AttentionRequest& r : c.requests) {
      columns_ = std::max(columns_, blocks_of(r));
      blocks += blocks_of(r);
      tokens += r.fresh;
    }
    std::vector<std::int32_t> ids(static_cast<std::size_t>(blocks));
    std::iota(ids.begin(), ids.end(), 0);
    std::shuffle(ids.begin(), ids.end(), rng_);
    lost_page_ = ids.back();  // there is one block more than requests have
    table_ = HostTensor(DType::i32, {static_cast<std::int64_t>(c.requests.size()), columns_});
    for (std::size_t r = 0, next = 0; r < c.requests.size(); ++r) {
      for (std::int64_t b = 0; b < blocks_of(c.requests[r]); ++b) {
        table_.as<std::int32_t>()[static_cast<std::int64_t>(r) * columns_ + b] = ids[next++];
      }
    }
    q_ = random_tensor(rng_, c.q_dtype, {tokens, c.heads, c.head_dim});
    for (std::int64_t i = 0; c.range != 0 && i < q_.numel(); ++i)
      q_.set(i, std::ldexp(q_.at(i), i / c.head_dim % c.heads % 2 != 0 ? c.range : -c.range));
    k_ = random_tensor(rng_, c.cache_dtype, {blocks, c.block_size, c.kv_heads, c.head_dim});
    v_ = random_tensor(rng_, c.cache_dtype, {blocks, c.block_size, c.kv_heads, c.value_dim});
    if (shared_cache) share_cache();
    sinks_ = random_tensor(rng_, DType::f32, {c.heads});
  }

  // [tokens, heads, value_dim]
  std::vector<double> reference() const {
    std::vector<double> out;
    std::int64_t token = 0;
    for (std::size_t r = 0; r < c_.requests.size(); ++r) {
      for (std::int64_t q = 0; q < c_.requests[r].fresh; ++q, ++token) {
        for (std::int64_t h = 0; h < c_.heads; ++h) {
          attend(r, token, c_.requests[r].cached + q, h, out);
        }
      }
    }
    return out;
  }

  // Every slot that no position uses becomes NaN; or that no query sees, so also those before all
  // windows.
  void poison_unused(bool before_windows = false) {
    std::vector<bool> used(static_cast<std::size_t>(k_.extents[0] * c_.block_size));
    for (std::size_t r = 0; r < c_.requests.size(); ++r) {
      const AttentionRequest& request = c_.requests[r];
      const std::int64_t first =
          before_windows ? std::max<std::int64_t>(0, request.cached - c_.window + 1) : 0;
      for (std::int64_t p = first; p < request.cached + request.fresh; ++p) {
        used[static_cast<std::size_t>(slot(r, p))] = true;
      }
    }
    for (std::size_t s = 0; s < used.size(); ++s) {
      if (!used[s]) poison(static_cast<std::int64_t>(s));
    }
  }

  // From here on these have the pages of their groups' first. own_pages_lost: in the tables of the
  // others are pages of NaN, for who reads the first's alone.
  void share(std::vector<SharedKeys> groups, bool own_pages_lost) {
    shared_ = std::move(groups);
    for (const SharedKeys& group : shared_) {
      for (const std::int32_t r : group.requests) {
        for (std::int64_t b = 0; b < group.keys / c_.block_size; ++b) {
          std::int32_t* table = table_.as<std::int32_t>();
          table[r * columns_ + b] = table[group.requests.front() * columns_ + b];
        }
      }
    }
    given_table_ = table_;
    if (!own_pages_lost) return;
    const std::int64_t block = c_.block_size * c_.kv_heads;
    for (std::int64_t i = 0; i < block * c_.head_dim; ++i)
      k_.set(lost_page_ * block * c_.head_dim + i, NAN);
    for (std::int64_t i = 0; i < block * c_.value_dim; ++i)
      v_.set(lost_page_ * block * c_.value_dim + i, NAN);
    for (const SharedKeys& group : shared_) {
      for (const std::int32_t r : group.requests) {
        for (std::int64_t b = 0; r != group.requests.front() && b < group.keys / c_.block_size; ++b)
          given_table_.as<std::int32_t>()[r * columns_ + b] = lost_page_;
      }
    }
  }

  // From here on operators know the rows on the host, and of workspaces have so many bytes, as
  // traits().attention_workspace_bytes() says for a model of such requests.
  void know_rows(std::int64_t workspace_bytes) {
    knows_rows_ = true;
    workspace_bytes_ = workspace_bytes;
  }

  // Called when all is uploaded, ahead of the operator.
  void before_attention(std::function<void()> call) { before_ = std::move(call); }

  // max_seq_len is at least `longest`, as where requests may grow up to there.
  HostTensor run(OpRun& run, int longest = 0) const {
    return attended(run, arguments(run, longest));
  }
  AttentionArgs arguments(OpRun& run, int longest = 0) const {
    std::vector<std::int32_t> starts = {0}, lens;
    for (const AttentionRequest& r : c_.requests) {
      starts.push_back(starts.back() + static_cast<std::int32_t>(r.fresh));
      lens.push_back(static_cast<std::int32_t>(r.cached + r.fresh));
    }
    if (shared_.empty()) return arguments(run, q_, table_, starts, lens, longest);
    std::vector<std::int32_t> begins = {0}, members, places(lens.size(), -1), lengths(lens.size());
    SharedPrefixes shared;
    for (const SharedKeys& group : shared_) {
      for (const std::int32_t r : group.requests) {
        const auto at = static_cast<std::size_t>(r);
        places[at] = static_cast<std::int32_t>(members.size());
        lengths[at] = static_cast<std::int32_t>(group.keys);
        members.insert(members.end(), static_cast<std::size_t>(c_.requests[at].fresh), r);
        shared.longest = std::max(shared.longest, static_cast<int>(c_.requests[at].fresh));
      }
      begins.push_back(static_cast<std::int32_t>(members.size()));
    }
    members.resize(members.size() + 3, -1);  // as where there is room for more
    begins.resize(begins.size() + 2, begins.back());
    shared.starts = run.upload(tensor_of(begins));
    shared.members = run.upload(tensor_of(members));
    shared.places = run.upload(tensor_of(places));
    shared.lengths = run.upload(tensor_of(lengths));
    return arguments(run, q_, given_table_, starts, lens, longest, shared);
  }

  // Of each new token, −1 of those that are to have none; what the cache has there becomes NaN, as
  // it is still to come.
  std::vector<std::int64_t> take_new_slots(const std::vector<std::size_t>& without) {
    std::vector<std::int64_t> slots;
    for (std::size_t r = 0; r < c_.requests.size(); ++r) {
      for (std::int64_t p = 0; p < c_.requests[r].fresh; ++p) {
        const bool none = std::find(without.begin(), without.end(), slots.size()) != without.end();
        slots.push_back(none ? -1 : slot(r, c_.requests[r].cached + p));
        if (!none) poison(slots.back());
      }
    }
    return slots;
  }

  // Queries [begin, begin + count) of one request alone.
  HostTensor run_chunk(OpRun& run, std::size_t request, std::int64_t begin,
                       std::int64_t count) const {
    std::int64_t token = begin;
    for (std::size_t r = 0; r < request; ++r) token += c_.requests[r].fresh;
    const std::int64_t row = c_.heads * c_.head_dim;
    HostTensor q(c_.q_dtype, {count, c_.heads, c_.head_dim});
    for (std::int64_t i = 0; i < count * row; ++i) q.set(i, q_.at(token * row + i));
    HostTensor table(DType::i32, {1, columns_});
    std::copy_n(table_.as<std::int32_t>() + static_cast<std::int64_t>(request) * columns_, columns_,
                table.as<std::int32_t>());
    const auto end = static_cast<std::int32_t>(c_.requests[request].cached + begin + count);
    return attended(run, arguments(run, q, table, {0, static_cast<std::int32_t>(count)}, {end}));
  }

  HostTensor run_mla(OpRun& run, int longest = 0) const {
    MlaArgs args;
    args.max_seq_len = longest;
    std::vector<std::int32_t> starts = {0}, lens;
    for (const AttentionRequest& r : c_.requests) {
      starts.push_back(starts.back() + static_cast<std::int32_t>(r.fresh));
      lens.push_back(static_cast<std::int32_t>(r.cached + r.fresh));
      args.max_query_len = std::max(args.max_query_len, static_cast<int>(r.fresh));
      args.max_seq_len = std::max(args.max_seq_len, lens.back());
    }
    args.out = run.output(c_.q_dtype, {q_.extents[0], c_.heads, c_.value_dim});
    args.q = run.upload(q_);
    args.cache = run.upload(k_).reshape({k_.extents[0], c_.block_size, c_.head_dim});
    args.block_table = run.upload(table_);
    args.query_start = run.upload(tensor_of(starts));
    args.seq_lens = run.upload(tensor_of(lens));
    args.cache_scale = c_.scale.k;
    args.scale = scale();
    run.ops().mla_attention(args, run.stream());
    return run.download(args.out);
  }

 private:
  std::int64_t blocks_of(const AttentionRequest& r) const {
    return (r.cached + r.fresh + c_.block_size - 1) / c_.block_size;
  }
  float scale() const {
    return std::ldexp(1.f / std::sqrt(static_cast<float>(c_.head_dim)), -c_.range);
  }
  std::int64_t slot(std::size_t request, std::int64_t position) const {
    const auto row = static_cast<std::int64_t>(request) * columns_;
    return table_.as<std::int32_t>()[row + position / c_.block_size] * c_.block_size +
           position % c_.block_size;
  }

  void poison(std::int64_t slot) {
    const std::int64_t at = slot * c_.kv_heads;
    for (std::int64_t i = 0; i < c_.kv_heads * c_.head_dim; ++i) k_.set(at * c_.head_dim + i, NAN);
    for (std::int64_t i = 0; i < c_.kv_heads * c_.value_dim; ++i)
      v_.set(at * c_.value_dim + i, NAN);
  }

  void share_cache() {
    for (std::int64_t s = 0; s < v_.numel() / c_.value_dim; ++s) {
      for (std::int64_t i = 0; i < c_.value_dim; ++i) {
        v_.set(s * c_.value_dim + i, k_.at(s * c_.head_dim + i));
      }
    }
  }

  void attend(std::size_t request, std::int64_t token, std::int64_t position, std::int64_t head,
              std::vector<double>& out) const {
    const std::int64_t kv = head / (c_.heads / c_.kv_heads);
    std::vector<double> weights, values(static_cast<std::size_t>(c_.value_dim));
    const std::int64_t first =
        c_.window > 0 ? std::max<std::int64_t>(0, position - c_.window + 1) : 0;
    double total = c_.sinks ? std::exp(sinks_.at(head)) : 0.;
    for (std::int64_t p = first; p <= position; ++p) {
      const std::int64_t at = (slot(request, p) * c_.kv_heads + kv) * c_.head_dim;
      double dot = 0;
      for (std::int64_t i = 0; i < c_.head_dim; ++i) {
        dot += q_.at((token * c_.heads + head) * c_.head_dim + i) * k_.at(at + i) * c_.scale.k;
      }
      dot *= scale();
      if (c_.soft_cap > 0) dot = c_.soft_cap * std::tanh(dot / c_.soft_cap);
      weights.push_back(std::exp(dot));
      total += weights.back();
    }
    for (std::int64_t p = first; p <= position; ++p) {
      const std::int64_t at = (slot(request, p) * c_.kv_heads + kv) * c_.value_dim;
      for (std::int64_t i = 0; i < c_.value_dim; ++i) {
        values[static_cast<std::size_t>(i)] +=
            weights[static_cast<std::size_t>(p - first)] / total * v_.at(at + i) * c_.scale.v;
      }
    }
    out.insert(out.end(), values.begin(), values.end());
  }

  HostTensor attended(OpRun& run, const AttentionArgs& args) const {
    if (before_) before_();
    run.ops().paged_attention(args, run.stream());
    return run.download(args.out);
  }
  AttentionArgs arguments(OpRun& run, const HostTensor& q, const HostTensor& table,
                          const std::vector<std::int32_t>& starts,
                          const std::vector<std::int32_t>& lens, int longest = 0,
                          const SharedPrefixes& shared = {}) const {
    AttentionArgs args;
    args.shared = shared;
    args.out = run.output(c_.q_dtype, {q.extents[0], c_.heads, c_.value_dim});
    args.q = run.upload(q);
    args.k_cache = run.upload(k_);
    args.v_cache = run.upload(v_);
    args.block_table = run.upload(table);
    args.query_start = run.upload(tensor_of(starts));
    args.seq_lens = run.upload(tensor_of(lens));
    if (c_.sinks) args.sinks = run.upload(sinks_);
    args.cache_scale = c_.scale;
    args.scale = scale();
    args.soft_cap = c_.soft_cap;
    args.window = c_.window;
    args.max_seq_len = std::max(longest, *std::max_element(lens.begin(), lens.end()));
    for (std::size_t r = 0; r < lens.size(); ++r) {
      args.max_query_len = std::max(args.max_query_len, starts[r + 1] - starts[r]);
    }
    if (knows_rows_) {
      host_starts_ = starts;
      host_lens_ = lens;
      args.host_rows = {host_starts_, host_lens_};
    }
    if (workspace_bytes_ > 0) args.workspace = run.output(DType::u8, {workspace_bytes_});
    return args;
  }

  AttentionCase c_;
  std::mt19937 rng_;
  std::int64_t columns_ = 0;
  bool knows_rows_ = false;
  std::int64_t workspace_bytes_ = 0;
  std::function<void()> before_;
  mutable std::vector<std::int32_t> host_starts_, host_lens_;  // of the latest arguments
  std::int32_t lost_page_ = 0;
  std::vector<SharedKeys> shared_;
  HostTensor given_table_;
  HostTensor table_, q_, k_, v_, sinks_;
};

}  // namespace quire::test
