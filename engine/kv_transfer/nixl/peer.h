#pragma once
// What another server said of itself over NIXL's side channel, checked against what this one is
// before the library or a buffer sees any of it. Pure; throws KvLost, which says what differs.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/kv_nixl/agent_blob.h"
#include "engine/kv_nixl/handshake.h"
#include "engine/kv_nixl/profile.h"
#include "engine/kv_nixl/source_ranks.h"
#include "engine/kv_transfer/blocks/layout.h"
#include "engine/kv_transfer/blocks/regions.h"
#include "engine/kv_transfer/plane/data_plane.h"

namespace quire {

// This server, as far as others have to fit it.
struct NixlSelf {
  KvGeometry geometry;
  BlockRegions regions;
  NixlProfile profile;
  CompatibilityFactors factors;
  bool compare_hash = true;

  BlockOrder order() const {
    return profile.packs_keys_and_values ? BlockOrder::packed : BlockOrder::halves;
  }
};

// Whether vLLM's blocks of that attention backend are in an order that is read here. Latents have
// one order only. Names for people are those of the refusal.
bool reads_blocks_of(std::string_view attention_backend, const KvGeometry& geometry);
inline constexpr std::string_view kReadBackends = "FLASH_ATTN and TRITON_ATTN";

// One rank of a server that others may read from.
struct NixlPeerRank {
  NixlMetadata metadata;
  NixlMemory memory = NixlMemory::dram;
  std::string agent_name;  // as the blob says
};

// How many of the kernel's blocks one region has.
std::uint64_t num_region_blocks(const NixlMetadata& metadata, std::size_t region);

// The frames of its answer.
NixlPeerRank read_peer_rank(const NixlSelf& self, const KvSource& source,
                            std::span<const std::string> frames);

// Which start of an engine the frames say that they are of; none where they cannot be read.
std::vector<std::string> engines_named(const NixlSelf& self, std::span<const std::string> frames);

// A layer's heads among so many ranks of another server; this one has no other ranks. Throws KvLost
// where they cannot be shared so.
RankPair ranks_of(const KvLayerGeometry& layer, int num_ranks);

}  // namespace quire
