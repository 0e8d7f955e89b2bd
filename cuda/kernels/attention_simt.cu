// Paged attention without tensor cores: float32 models, unusual head sizes, and the reference that
// the tensor-core kernels are compared with on a device. Each warp walks its share of the context
// with an online softmax for all query heads of one KV head, so K and V are read once per token and
// KV head.

#include <algorithm>

#include "cuda/device/block_sum.cuh"
#include "cuda/device/request_of.cuh"
#include "cuda/device/vec.cuh"
#include "cuda/kernels/attention.h"
#include "cuda/kernels/launchers.h"
#include "cuda/kernels/merge_row.cuh"
#include "cuda/kernels/paged_args.cuh"
#include "cuda/runtime/capability.h"

namespace quire::cuda {
namespace {

constexpr int kWarps = 4;
constexpr std::int64_t kMaxSplits = 64;
constexpr std::int64_t kBlocksPerProcessor = 16;  // three to eight of them at a time
constexpr int kKeysPerSplit = 256;  // below this a split costs more than it brings; one that finds
                                    // no keys left ends at once

template <class T, class Cache>
struct SimtArgs : PagedArgs<T, Cache> {
  float* partials;  // null: one split
  int num_requests, splits;

  SimtArgs(const AttentionArgs& args, float* to, int count)
      : PagedArgs<T, Cache>(args),
        partials(to),
        num_requests(static_cast<int>(args.seq_lens.extent(0))),
        splits(count) {}
};

// Threads' states and values of one head, summed over warps through shared memory, then written:
// whole, or as one split.
template <class T, class Cache, int kPerLane>
__device__ void finish_head(const SimtArgs<T, Cache>& a, const SoftmaxState& state,
                            const float (&values)[kPerLane], int token, int head, int split) {
  SHARED(maxima, float[kWarps]);
  SHARED(sums, float[kWarps]);
  SHARED(parts, float[kWarps][kPerLane * 32]);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int dim = static_cast<int>(a.v_cache.extent[3]), heads = static_cast<int>(a.out.extent[1]);
  __syncthreads();  // the head before has been read
  if (lane == 0) {
    maxima[warp] = state.max;
    sums[warp] = state.sum;
  }
  for (int e = 0; e < kPerLane; ++e) parts[warp][lane + 32 * e] = values[e];
  __syncthreads();
  SoftmaxState total;
  for (int w = 0; w < kWarps; ++w) total.merge({maxima[w], sums[w]});
  const float top = total.max;
  const bool whole = a.partials == nullptr;
  const float kept = whole && a.sinks != nullptr ? total.push_sink(a.sinks[head]) : 1.f;
  float* partial =
      whole ? nullptr
            : a.partials + ((static_cast<std::int64_t>(token) * heads + head) * a.splits + split) *
                               (dim + 2);
  for (int d = threadIdx.x; d < dim; d += kWarps * 32) {
    float value = 0.f;
    for (int w = 0; w < kWarps; ++w)
      value += parts[w][d] * SoftmaxState{maxima[w], 0.f}.factor(top);
    value *= a.value_scale;
    if (whole) {
      a.out(token, head, d) = T(total.sum > 0.f ? value * kept / total.sum : 0.f);
    } else {
      partial[d] = value;
    }
  }
  if (!whole && threadIdx.x == 0) {
    partial[dim] = total.max;
    partial[dim + 1] = total.sum;
  }
}

// A split without keys: its values are not written, nor read by the merge.
template <class T, class Cache>
__device__ void mark_empty(const SimtArgs<T, Cache>& a, int token, int first_head, int count,
                           int split) {
  const int dim = static_cast<int>(a.v_cache.extent[3]), heads = static_cast<int>(a.out.extent[1]);
  for (int h = threadIdx.x; h < count; h += kWarps * 32) {
    float* partial =
        a.partials +
        ((static_cast<std::int64_t>(token) * heads + first_head + h) * a.splits + split) *
            (dim + 2);
    partial[dim] = -INFINITY;
    partial[dim + 1] = 0.f;
  }
}

// One block per (token, KV head, split); kGroup query heads share the KV head's loads.
template <class T, class Cache, int kPerLane, int kGroup>
__global__ void __launch_bounds__(kWarps * 32)
    attention_simt_kernel(const __grid_constant__ SimtArgs<T, Cache> a) {
  release_next_kernel();
  await_previous_kernel();
  const int token = blockIdx.x, kv_head = blockIdx.y, split = blockIdx.z;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int request = request_of(a.query_start, a.num_requests, token);
  const int position = a.seq_lens[request] - a.query_start[request + 1] + token;
  const int group = static_cast<int>(a.q.extent[1] / a.k_cache.extent[2]);
  const int k_dim = static_cast<int>(a.k_cache.extent[3]),
            v_dim = static_cast<int>(a.v_cache.extent[3]);
  const int block_size = static_cast<int>(a.k_cache.extent[1]);
  const int first = a.window > 0 ? max(0, position - a.window + 1) : 0;
  const int keys = position + 1 - first;
  const int per_split = a.splits == 1 ? keys : max(kKeysPerSplit, (keys + a.splits - 1) / a.splits);
  const int begin = first + split * per_split, end = min(position + 1, begin + per_split);
  if (a.partials != nullptr && begin >= end)
    return mark_empty(a, token, kv_head * group, group, split);

  for (int g0 = 0; g0 < group; g0 += kGroup) {
    float q[kGroup][kPerLane], values[kGroup][kPerLane];
    SoftmaxState states[kGroup];
#pragma unroll
    for (int g = 0; g < kGroup; ++g) {
      const int head = kv_head * group + min(g0 + g, group - 1);
      for (int e = 0; e < kPerLane; ++e) {
        const int d = lane + 32 * e;
        q[g][e] = d < k_dim ? static_cast<float>(a.q(token, head, d)) * a.scale : 0.f;
        values[g][e] = 0.f;
      }
    }
    for (int t = begin + warp; t < end; t += kWarps) {
      const int block = a.block_table(request, t / block_size), offset = t % block_size;
      float k[kPerLane], v[kPerLane];
      for (int e = 0; e < kPerLane; ++e) {
        const int d = lane + 32 * e;
        k[e] = d < k_dim ? static_cast<float>(a.k_cache(block, offset, kv_head, d)) : 0.f;
        v[e] = d < v_dim ? static_cast<float>(a.v_cache(block, offset, kv_head, d)) : 0.f;
      }
#pragma unroll
      for (int g = 0; g < kGroup; ++g) {
        float logit = 0.f;
        for (int e = 0; e < kPerLane; ++e) logit += q[g][e] * k[e];
        logit = warp_reduce(logit, Add{});
        if (a.soft_cap > 0.f) logit = a.soft_cap * tanhf(logit / a.soft_cap);
        float rescale;
        const float weight = states[g].push(logit, rescale);
        for (int e = 0; e < kPerLane; ++e) values[g][e] = values[g][e] * rescale + weight * v[e];
      }
    }
#pragma unroll
    for (int g = 0; g < kGroup; ++g) {
      if (g0 + g < group)
        finish_head(a, states[g], values[g], token, kv_head * group + g0 + g, split);
    }
  }
}

// One block per (token, head).
template <class T>
__global__ void __launch_bounds__(kMergeThreads)
    merge_splits_kernel(View<T, 3> out, const float* partials, const float* sinks, int splits) {
  release_next_kernel();
  await_previous_kernel();
  const int token = blockIdx.x, head = blockIdx.y;
  const std::int64_t size = out.extent[2] + 2,
                     first = (static_cast<std::int64_t>(token) * out.extent[1] + head) * splits;
  merge_row(out, token, head, sinks, splits,
            [&](int split) { return partials + (first + split) * size; });
}

template <class T, class Cache>
void launch_simt(const AttentionArgs& args, int splits, float* partials, StreamRef stream) {
  const SimtArgs<T, Cache> a(args, partials, splits);
  const std::int64_t dim = std::max(args.k_cache.extent(3), args.v_cache.extent(3)),
                     kv_heads = args.k_cache.extent(2);
  const bool grouped = args.q.extent(1) > kv_heads;
  const dim3 grid(static_cast<unsigned>(args.q.extent(0)), static_cast<unsigned>(kv_heads),
                  static_cast<unsigned>(splits));
  const auto go = [&](auto kernel) {
    CUDA_CHECK(launch(kernel, grid, dim3(kWarps * 32), 0, native(stream), a));
  };
  if (dim <= 64)
    return go(grouped ? attention_simt_kernel<T, Cache, 2, 4>
                      : attention_simt_kernel<T, Cache, 2, 1>);
  if (dim <= 128)
    return go(grouped ? attention_simt_kernel<T, Cache, 4, 4>
                      : attention_simt_kernel<T, Cache, 4, 1>);
  if (dim <= 256)
    return go(grouped ? attention_simt_kernel<T, Cache, 8, 4>
                      : attention_simt_kernel<T, Cache, 8, 1>);
  if (dim <= 576) return go(attention_simt_kernel<T, Cache, 18, 1>);  // a latent and its key
  throw Failure(ErrorCode::unsupported, "attention heads of more than 576 elements on CUDA");
}

// Where partial results of `room` splits fit, and `blocks` blocks run without. A graph is sized for
// the longest context, and each split that finds no keys is a block anyway: beyond a few waves of
// blocks there are no more splits.
int count_splits(std::int64_t wanted, std::int64_t room, std::int64_t blocks) {
  const std::int64_t waves = kBlocksPerProcessor * processor_count() / blocks;
  return static_cast<int>(std::clamp<std::int64_t>(std::min({wanted, room, waves}), 1, kMaxSplits));
}

void merge_splits(TensorView out, TensorView sinks, const float* partials, int splits,
                  StreamRef stream) {
  dispatch_device_float(out.dtype(), [&]<class T>(Type<T>) {
    CUDA_CHECK(
        launch(merge_splits_kernel<T>,
               dim3(static_cast<unsigned>(out.extent(0)), static_cast<unsigned>(out.extent(1))),
               dim3(kMergeThreads), 0, native(stream), device_view<T, 3>(out), partials,
               static_cast<const float*>(sinks.data()), splits));
  });
}

}  // namespace

void attention_simt(const AttentionArgs& args, SplitScratch scratch, StreamRef stream) {
  const std::int64_t tokens = args.q.extent(0), heads = args.q.extent(1);
  const std::int64_t v_dim = args.v_cache.extent(3);
  if (tokens == 0) return;
  const std::int64_t keys =
      args.window > 0 ? std::min(args.window, args.max_seq_len) : args.max_seq_len;
  const std::int64_t room = scratch.floats / (tokens * heads * (v_dim + 2));
  const std::int64_t wanted = (keys + kKeysPerSplit - 1) / kKeysPerSplit;
  const int splits = count_splits(wanted, room, tokens * args.k_cache.extent(2));
  float* partials = splits > 1 ? scratch.data : nullptr;
  dispatch_device_float(args.q.dtype(), [&]<class T>(Type<T>) {
    dispatch_cache(args.k_cache.dtype(), [&]<class Cache>(Type<Cache>) {
      launch_simt<T, Cache>(args, splits, partials, stream);
    });
  });
  if (splits > 1) merge_splits(args.out, args.sinks, scratch.data, splits, stream);
}

}  // namespace quire::cuda
