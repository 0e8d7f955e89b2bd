#include "engine/kv_transfer/blocks/sum_seed.h"

#include <array>
#include <span>

#include "engine/kv_transfer/content/checksum.h"

namespace quire {
namespace {

constexpr std::uint64_t kSumSeed = 0x51;

}  // namespace

std::uint64_t block_sum_seed(std::string_view key) {
  return kv_checksum(std::as_bytes(std::span(key)), kSumSeed);
}

std::uint64_t block_sum_seed(std::string_view key, const BlockIdentity& block) {
  const std::array<std::uint64_t, 3> words{block.prompt_hash, block.group,
                                           static_cast<std::uint64_t>(block.first_token)};
  return kv_checksum(std::as_bytes(std::span(words)), block_sum_seed(key));
}

}  // namespace quire
