#pragma once
// Online softmax: what is known after some keys, as a type that merges. Milakov, Gimelshein,
// "Online normalizer calculation for softmax", 2018. A state without keys has max −inf and sum 0.

#include "cuda/device/kernel.cuh"

namespace quire::cuda {

struct SoftmaxState {
  float max = -INFINITY;
  float sum = 0.f;

  // Takes one logit in; returns its weight. Whatever was weighted before is to be multiplied by
  // `rescale`.
  __device__ __forceinline__ float push(float logit, float& rescale) {
    const float grown = fmaxf(max, logit);
    rescale = max == -INFINITY ? 0.f : __expf(max - grown);
    const float weight = __expf(logit - grown);
    sum = sum * rescale + weight;
    max = grown;
    return weight;
  }
  // Factor for this state's weighted values in a total whose maximum is total_max.
  __device__ __forceinline__ float factor(float total_max) const {
    return max == -INFINITY ? 0.f : __expf(max - total_max);
  }
  // Takes in what is known of other keys; values weighted on either side are then to be multiplied
  // by that side's factor(max).
  __device__ __forceinline__ void merge(const SoftmaxState& other) {
    const float grown = fmaxf(max, other.max);
    sum = sum * factor(grown) + other.sum * other.factor(grown);
    max = grown;
  }
  // A logit that has no value; returns what this state's weighted values are to be multiplied by.
  __device__ __forceinline__ float push_sink(float logit) {
    const float grown = fmaxf(max, logit), kept = factor(grown);
    sum = sum * kept + __expf(logit - grown);
    max = grown;
    return kept;
  }
};

}  // namespace quire::cuda
