#pragma once
// Philox4x32-10: a random number as a function of (key, counter), so a draw depends on nothing but
// what names it. J. Salmon, M. Moraes, R. Dror, D. Shaw, "Parallel random numbers: as easy as 1, 2,
// 3", SC 2011. The same on host and device.

#include <cmath>
#include <cstdint>

#ifdef __CUDACC__
#define QUIRE_HOST_DEVICE __host__ __device__
#else
#define QUIRE_HOST_DEVICE
#endif

namespace quire {

struct Philox {
  std::uint32_t word[4];
};

QUIRE_HOST_DEVICE inline Philox philox(std::uint64_t key, std::uint64_t low, std::uint64_t high) {
  Philox c{{static_cast<std::uint32_t>(low), static_cast<std::uint32_t>(low >> 32),
            static_cast<std::uint32_t>(high), static_cast<std::uint32_t>(high >> 32)}};
  auto k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * c.word[0];
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57u} * c.word[2];
    c = {{static_cast<std::uint32_t>(p1 >> 32) ^ c.word[1] ^ k0, static_cast<std::uint32_t>(p1),
          static_cast<std::uint32_t>(p0 >> 32) ^ c.word[3] ^ k1, static_cast<std::uint32_t>(p0)}};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

// Exponentially distributed with mean 1, and fine-grained near 0, where races are decided.
QUIRE_HOST_DEVICE inline float exponential_of(std::uint32_t word) {
  constexpr float kStep = 1.f / 4294967296.f;
  return -log1pf(-(static_cast<float>(word) * kStep + kStep / 2));
}

// The noise of a vocabulary entry in the draw of the token at position with seed. Drawing from
// softmax(logits) is taking the largest logit + noise (Gumbel), so which tokens were left out, and
// in which order they are looked at, changes nothing for the others.
QUIRE_HOST_DEVICE inline float gumbel_noise(std::uint64_t seed, std::int64_t position,
                                            std::int32_t token) {
  const auto id = static_cast<std::uint32_t>(token);
  const Philox random = philox(seed, id / 4, static_cast<std::uint64_t>(position));
  return -logf(exponential_of(random.word[id % 4]));
}

// Larger than any gumbel_noise().
inline constexpr float kGumbelBound = 23.f;

}  // namespace quire
