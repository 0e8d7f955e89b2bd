#include "cpu/cpu_encoder.h"

#include <algorithm>
#include <cassert>

namespace quire::cpu {
namespace {

std::int64_t row_count(TensorView v) { return v.numel() / v.extent(v.rank() - 1); }

constexpr std::int64_t kExpWork = 8;
constexpr std::int64_t kQueriesPerItem = 64;  // for which the keys are laid out anew

}  // namespace

const EncoderKernels& choose_encoder_kernels(CpuIsa best_allowed) {
  const CpuIsa isa = std::min(best_allowed, detect_cpu_isa());
#if defined(__x86_64__)
  if (isa >= CpuIsa::avx512) return encoder_kernels_avx512();
  if (isa >= CpuIsa::avx2) return encoder_kernels_avx2();
#endif
  static_cast<void>(isa);
  return encoder_kernels_portable();
}

void layer_norm(Context& on, const EncoderKernels& kernels, TensorView out, TensorView x,
                TensorView weight, TensorView bias, float eps) {
  const std::int64_t width = x.extent(x.rank() - 1);
  assert(x.dtype() == out.dtype() || x.dtype() == DType::f32);
  assert(weight.numel() == width && bias.numel() == width && weight.dtype() == bias.dtype());
  const LayerNormArgs args{rows_of(out), rows_of(x), weight.data(), bias.data(),
                           float_of(weight.dtype()), width, eps};
  on.for_rows(row_count(x), 3 * width, [&](std::int64_t begin, std::int64_t end) {
    kernels.layer_norm(args, begin, end);
  });
}

void gelu(Context& on, const EncoderKernels& kernels, TensorView x) {
  const std::int64_t width = x.extent(x.rank() - 1);
  on.for_rows(row_count(x), width * kExpWork, [&](std::int64_t begin, std::int64_t end) {
    kernels.gelu(rows_of(x), width, begin, end);
  });
}

void encoder_attention(Context& on, const EncoderKernels& kernels,
                       const EncoderAttentionArgs& args) {
  assert(args.q.dtype() == args.k.dtype() && args.k.dtype() == args.v.dtype());
  const std::int64_t heads = args.q.extent(1), dim = args.q.extent(2);
  const auto* const start = args.query_start.as<std::int32_t, 1>().data;
  const EncoderAttentionLoop loop{rows_of(args.out), rows_of(args.q), rows_of(args.k),
                                  rows_of(args.v),   start,           heads,
                                  dim,               args.scale};
  struct Item {
    std::int64_t request, begin, end;
  };
  std::vector<Item> items;
  std::int64_t longest = 0, work = 0;
  for (std::int64_t r = 0; r + 1 < args.query_start.extent(0); ++r) {
    const std::int64_t length = start[r + 1] - start[r];
    longest = std::max(longest, length);
    work += length * length * dim / kExpWork;
    for (std::int64_t begin = 0; begin < length; begin += kQueriesPerItem)
      items.push_back({r, begin, std::min(length, begin + kQueriesPerItem)});
  }
  const std::int64_t padded = (longest + 15) / 16 * 16;
  const auto scratch_bytes =
      static_cast<std::size_t>((2 * dim + kEncoderRows) * padded + kEncoderRows * dim) *
      sizeof(float);
  const auto count = static_cast<std::int64_t>(items.size());
  if (count == 0) return;
  on.for_rows(count * heads, work / count + 1, [&](std::int64_t begin, std::int64_t end) {
    auto* const scratch = static_cast<float*>(thread_scratch(scratch_bytes));
    for (std::int64_t i = begin; i < end; ++i) {
      const Item& item = items[static_cast<std::size_t>(i / heads)];
      kernels.attention(loop, item.request, i % heads, item.begin, item.end, scratch);
    }
  });
}

}  // namespace quire::cpu
