#include "engine/kv_hash/event_hash.h"

#include <openssl/sha.h>

#include <random>

namespace quire {

Sha256 sha256(std::span<const std::uint8_t> data) {
  Sha256 digest;
  SHA256(data.data(), data.size(), digest.data());
  return digest;
}

Sha256 root_hash(const std::optional<std::string>& seed) {
  if (seed) {
    CborWriter cbor;
    cbor.text(*seed);
    return sha256(cbor.data());
  }
  std::random_device source;
  Sha256 root;
  for (std::uint8_t& byte : root) byte = static_cast<std::uint8_t>(source());
  return root;
}

Sha256 EventHasher::block(const Sha256& parent, std::span<const TokenId> tokens,
                          const std::vector<ExtraKey>& extras) {
  cbor_.clear();
  cbor_.array(3);
  cbor_.bytes(parent);
  cbor_.array(tokens.size());
  for (const TokenId token : tokens) cbor_.integer(token);
  if (extras.empty()) {
    cbor_.null();
    return sha256(cbor_.data());
  }
  cbor_.array(extras.size());
  for (const ExtraKey& extra : extras) {
    if (const auto* item = std::get_if<ItemKey>(&extra)) {
      cbor_.array(2);
      cbor_.text(item->identifier);
      cbor_.integer(item->offset);
    } else {
      cbor_.text(std::get<std::string>(extra));
    }
  }
  return sha256(cbor_.data());
}

void EventHasher::extend(Request& request, int num_tokens) {
  std::vector<Sha256>& hashes = request.event_hashes;
  const auto size = static_cast<std::size_t>(block_size_);
  const std::size_t num_full = static_cast<std::size_t>(num_tokens) / size;
  int next_item = 0;
  while (hashes.size() < num_full) {
    const std::size_t start = hashes.size() * size;
    const Sha256 parent = hashes.empty() ? root_ : hashes.back();
    const auto extras = extra_keys(extra_key_inputs(request), static_cast<int>(start),
                                   static_cast<int>(start + size), next_item);
    hashes.push_back(block(parent, request.tokens().subspan(start, size), extras));
  }
}

std::vector<std::uint8_t> group_key(std::span<const std::uint8_t> block_hash, std::uint32_t group) {
  std::vector<std::uint8_t> key(block_hash.begin(), block_hash.end());
  for (int shift = 24; shift >= 0; shift -= 8) {
    key.push_back(static_cast<std::uint8_t>(group >> shift));
  }
  return key;
}

std::uint64_t event_int(std::span<const std::uint8_t> block_hash) {
  std::uint64_t value = 0;
  for (const std::uint8_t byte : block_hash.last(8)) value = value << 8 | byte;
  return value;
}

}  // namespace quire
