#pragma once
// Block hashes that other processes can repeat: SHA-256 of canonical CBOR, vLLM's "sha256_cbor".
//   root = SHA-256(CBOR(seed)); block = SHA-256(CBOR([parent, [tokens], null | [extra keys]]))

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/kv_hash/block_hash.h"
#include "engine/kv_hash/cbor.h"
#include "engine/request/request.h"

namespace quire {

Sha256 sha256(std::span<const std::uint8_t> data);

// What routers compute for themselves when they share the seed (PYTHONHASHSEED there). Without one
// the root is random, and hashes mean nothing outside of this process.
Sha256 root_hash(const std::optional<std::string>& seed);

class EventHasher {
 public:
  EventHasher(int block_size, const Sha256& root) : block_size_(block_size), root_(root) {}

  // Appends the hashes of full blocks until num_tokens are covered.
  void extend(Request& request, int num_tokens);

 private:
  Sha256 block(const Sha256& parent, std::span<const TokenId> tokens,
               const std::vector<ExtraKey>& extras);

  int block_size_;  // tokens
  Sha256 root_;
  CborWriter cbor_;
};

// A group's block hash as a cache key: the hash and the group in four big-endian bytes.
std::vector<std::uint8_t> group_key(std::span<const std::uint8_t> block_hash, std::uint32_t group);

// The hash in events that carry integers: its last eight bytes, big-endian.
std::uint64_t event_int(std::span<const std::uint8_t> block_hash);

}  // namespace quire
