#pragma once
// A warpgroup's sums of an expert product of a prompt, and what a step of K adds to them.
//
// fp8 keeps sums of 128 columns of K apart, which the tensor cores make with few bits, and adds
// them up in float32, times the scales of tokens and weights (DeepSeek-V3, 2024, section 3.3.2).
//
// MXFP4 becomes bf16 in registers, exactly, and so is multiplied: while tensor cores have one half
// of the rows, the other's weights are made.

#include "cuda/kernels/expert_formats.cuh"
#include "cuda/kernels/prompt_copies.cuh"

namespace quire::cuda {

constexpr int kBlocks = kTokens / 8;

// A warp's place in the item: a lane has two rows of either half.
struct LanePlace {
  // From one lane, for ptxas to know that a warp has one.
  int group = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / kGroupThreads, 0);

  // Of a half's 128.
  __device__ __forceinline__ static int warp_row() {
    return static_cast<int>(threadIdx.x) / 32 * 16;
  }
  __device__ __forceinline__ static int row(int i) {
    return warp_row() + static_cast<int>(threadIdx.x) % 32 / 4 + 8 * i;
  }
};

// 128 bytes of K, for the first 8 · kSome tokens.
template <class T, int kSome>
__device__ __forceinline__ void multiply(FragmentC (&some)[kSome], const PromptStage<T>& stage,
                                         int half, const LanePlace& place, bool accumulate) {
  const SharedMatrix weight = shared_matrix(&stage.weight[half][place.group * 64]),
                     x = shared_matrix(&stage.x);
#pragma unroll
  for (int k = 0; k < kPanelBytes / 32; ++k)
    warpgroup_mma<T>(some, weight.advanced(k * 32), x.advanced(k * 32), accumulate || k > 0);
}

// Products of a step are waited for behind those of the next.
template <class T>
struct PromptSums {
  static constexpr int kAhead = 2;  // steps to copy: one more stage is still being read
  FragmentC half[2][kBlocks];

  __device__ __forceinline__ PromptSums(const PromptProduct&, const PromptItem&, const LanePlace&) {
  }

  template <int kSome, class Copy>
  __device__ __forceinline__ void step(const PromptStages<T>& stages, int stage, int number,
                                       const LanePlace& place, const Copy& copy_next) {
    warpgroup_fence();
#pragma unroll
    for (int h = 0; h < 2; ++h)
      multiply<T, kSome>(reinterpret_cast<FragmentC(&)[kSome]>(half[h]), stages.stage[stage], h,
                         place, number > 0);
    warpgroup_commit();
    copy_next();
    warpgroup_wait<1>();
  }
  __device__ __forceinline__ void finish() {
    warpgroup_wait<0>();
    hold(half[0]);
    hold(half[1]);
  }
};

template <>
struct PromptSums<__nv_fp8_e4m3> {
  using T = __nv_fp8_e4m3;
  static constexpr int kAhead = 3;
  FragmentC half[2][kBlocks] = {};

  __device__ __forceinline__ PromptSums(const PromptProduct& p, const PromptItem& item,
                                        const LanePlace& place)
      : p_(p) {
    if (!p.by_block) return;
#pragma unroll
    for (int h = 0; h < 2; ++h) scale_[h] = p.scale_place(item, h, place.warp_row());
  }

  template <int kSome, class Copy>
  __device__ __forceinline__ void step(const PromptStages<T>& stages, int stage, int number,
                                       const LanePlace& place, const Copy& copy_next) {
    FragmentC part[kSome];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float scale = p_.by_block ? p_.scales[scale_[h] + number] : 1.f;
      warpgroup_fence();
      multiply<T, kSome>(part, stages.stage[stage], h, place, false);
      warpgroup_commit();
      if (h == 0) copy_next();
      warpgroup_wait<0>();
      hold(part);
      add<kSome>(half[h], part, stages.x_scale[stage], scale);
    }
  }
  __device__ __forceinline__ void finish() {}

 private:
  const PromptProduct& p_;
  std::uint32_t scale_[2];  // of the halves' rows, for the first step

  template <int kSome>
  __device__ __forceinline__ static void add(FragmentC (&sums)[kBlocks],
                                             const FragmentC (&part)[kSome],
                                             const float (&x_scale)[kTokens], float scale) {
    const float* mine = x_scale + threadIdx.x % 4 * 2;
#pragma unroll
    for (int n = 0; n < kSome; ++n) {
      const auto of_x = *reinterpret_cast<const float2*>(mine + n * 8);
      const float factor[2] = {of_x.x * scale, of_x.y * scale};
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[n].r[i] = fmaf(part[n].r[i], factor[i % 2], sums[n].r[i]);
    }
  }
};

// The scales of a step's two groups, for the four rows that a quad of lanes has: each lane reads
// one row's, a step ahead, and gives them to the others. Exponents above 128 leave a second factor,
// as e2m1_pair's numbers are small by 2^126.
class Mxfp4Scales {
 public:
  __device__ __forceinline__ Mxfp4Scales(const PromptProduct& p, const PromptItem& item,
                                         const LanePlace& place)
      : from_(p.exponents + p.scale_place(item, lane() / 2, place.row(lane() % 2))),
        groups_(p.depth / kMxGroup) {
    fetch();
  }

  // To the next step.
  __device__ __forceinline__ void advance() {
    const int low = low_, high = high_;
    fetch();
    factors_ =
        static_cast<std::uint32_t>((min(low, kMost) + 126) << 7 | (min(high, kMost) + 126) << 23);
    any_rest_ = __any_sync(0xffffffffu, max(low, high) > kMost) != 0;
    if (any_rest_) rests_ = rest(low) | rest(high) << 16;
  }
  __device__ __forceinline__ bool any_rest() const { return any_rest_; }
  // Of a row's two groups: row i of the lane's in a half.
  __device__ __forceinline__ std::uint32_t factors(int half, int i) const {
    return of_row(factors_, half, i);
  }
  __device__ __forceinline__ std::uint32_t rests(int half, int i) const {
    return of_row(rests_, half, i);
  }
  __device__ __forceinline__ static __nv_bfloat162 pair(std::uint32_t both, int group) {
    return pair_of_bits(__byte_perm(both, 0, group == 0 ? 0x1010 : 0x3232));
  }

 private:
  static constexpr int kMost = 128, kNan = 255;

  __device__ __forceinline__ static int lane() { return static_cast<int>(threadIdx.x) % 4; }
  __device__ __forceinline__ static std::uint32_t rest(int exponent) {
    return exponent == kNan ? 0x7fffu : static_cast<std::uint32_t>(max(exponent, kMost) - 1) << 7;
  }
  __device__ __forceinline__ static std::uint32_t of_row(std::uint32_t mine, int half, int i) {
    return __shfl_sync(0xffffffffu, mine,
                       static_cast<int>(threadIdx.x) % 32 / 4 * 4 + 2 * half + i);
  }
  __device__ __forceinline__ void fetch() {
    low_ = groups_ > 0 ? from_[0] : 0;
    high_ = groups_ > 1 ? from_[1] : 0;
    from_ += 2;
    groups_ -= 2;
  }

  const std::uint8_t* from_;
  int groups_, low_, high_;                // groups left; exponents of the next step
  std::uint32_t factors_ = 0, rests_ = 0;  // of this step's, as bf16
  bool any_rest_ = false;
};

template <>
struct PromptSums<Mxfp4> {
  using T = __nv_bfloat16;
  static constexpr int kAhead = kStages<Mxfp4> - 2;  // as above
  static constexpr int kGroups = PromptStage<Mxfp4>::kGroups;
  FragmentC half[2][kBlocks];

  __device__ __forceinline__ PromptSums(const PromptProduct& p, const PromptItem& item,
                                        const LanePlace& place)
      : scales_(p, item, place) {}

  template <int kSome, class Copy>
  __device__ __forceinline__ void step(const PromptStages<Mxfp4>& stages, int stage, int number,
                                       const LanePlace& place, const Copy& copy_next) {
    const PromptStage<Mxfp4>& from = stages.stage[stage];
    const SharedMatrix x = shared_matrix(&from.x);
    scales_.advance();
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      auto& sums = reinterpret_cast<FragmentC(&)[kSome]>(half[h]);
      warpgroup_wait<1>();  // this half's weights of the step before have been used
      hold(weights_[h]);
      load(from, h, place);
      warpgroup_fence();
#pragma unroll
      for (int k = 0; k < 2 * kGroups; ++k)
        warpgroup_mma<T, Major::k>(sums, weights_[h][k], x.advanced(k * 32), number > 0 || k > 0);
      warpgroup_commit();
      if (h == 0) copy_next();
    }
  }
  __device__ __forceinline__ void finish() {
    warpgroup_wait<0>();
    hold(half[0]);
    hold(half[1]);
    hold(weights_[0]);
    hold(weights_[1]);
  }

 private:
  FragmentA weights_[2][2 * kGroups];
  Mxfp4Scales scales_;

  __device__ __forceinline__ void load(const PromptStage<Mxfp4>& from, int h,
                                       const LanePlace& place) {
    const std::uint32_t low = scales_.factors(h, 0), high = scales_.factors(h, 1);
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      auto& a = reinterpret_cast<FragmentA(&)[2]>(weights_[h][2 * g]);
      Mxfp4Format::weights(a, from.weight[h][g][place.row(0)], from.weight[h][g][place.row(1)],
                           Mxfp4Scales::pair(low, g), Mxfp4Scales::pair(high, g));
    }
    if (scales_.any_rest()) multiply_rest(h);
  }
  __device__ __forceinline__ void multiply_rest(int h) {
    const std::uint32_t rests[2] = {scales_.rests(h, 0), scales_.rests(h, 1)};
#pragma unroll
    for (int k = 0; k < 2 * kGroups; ++k) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        std::uint32_t& r = weights_[h][k].r[i];
        r = bits_of(__hmul2(pair_of_bits(r), Mxfp4Scales::pair(rests[i % 2], k / 2)));
      }
    }
  }
};

}  // namespace quire::cuda
