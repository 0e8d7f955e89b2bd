#pragma once
// The messages of the side channel of vLLM's NIXL connector, as MessagePack. An engine that wants
// to read asks for one rank's metadata; the other answers with a hash and, inside a second message,
// where its blocks are. Engines of ours add a member that vLLM's decoder leaves alone. Pure; sizes
// are bounded.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/kv_nixl/profile.h"

namespace quire {

inline constexpr std::size_t kMaxHandshakeBytes = 16 << 20;

struct NixlRank {
  int pipeline = 0, tensor = 0;
};
std::string encode_metadata_request(NixlRank rank, const NixlProfile& profile);
// The error is for our log only: nobody answers what cannot be read.
Result<NixlRank> parse_metadata_request(std::string_view bytes);

// What a Quire server says beside: how others check what they have read.
struct QuireExtension {
  std::string geometry;            // a KvWelcome, see engine/kv_transfer/content/frames.h
  std::uint64_t sums_address = 0;  // 8 bytes per block
};

struct NixlMetadata {
  std::string engine;
  std::string agent;  // see agent_blob.h
  std::vector<std::uint64_t> base_addresses;
  std::uint64_t device = 0;
  std::uint64_t num_blocks = 0;  // kernel blocks
  std::vector<std::uint64_t> block_lens;
  std::vector<std::uint64_t> block_strides;  // as many; block_lens where the profile has none
  std::string layout;
  int block_size = 0;  // tokens of a kernel block
  std::array<std::uint64_t, 2> state_bytes{};
  std::string attention_backend;
  int kernel_blocks_per_block = 1;
  std::vector<std::uint64_t> region_blocks;  // kernel blocks; empty: num_blocks of each
  std::vector<std::string> region_names;     // empty: not said
  std::vector<std::int32_t> memories;        // of each region, a NixlMemory; empty: not said
  int dcp_size = 1, pcp_size = 1;
  std::optional<QuireExtension> quire;
};

struct NixlHandshake {
  std::string hash;
  std::string metadata;  // to be read once the hash is right
};

std::string encode_handshake(const NixlHandshake& handshake);
Result<NixlHandshake> parse_handshake(std::string_view bytes);

// The second frame of an answer: seconds of the answering process's own clock.
std::string encode_clock(double seconds);

std::string encode_metadata(const NixlMetadata& metadata, const NixlProfile& profile);
// Fields that the profile does not know are left alone.
Result<NixlMetadata> parse_metadata(std::string_view bytes, const NixlProfile& profile);

}  // namespace quire
