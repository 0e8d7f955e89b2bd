#include "engine/kv_transfer/nixl/peer.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/error.h"
#include "engine/kv_nixl/peer_fit.h"
#include "engine/kv_transfer/blocks/shape.h"
#include "engine/kv_transfer/blocks/state_layout.h"

namespace quire {
namespace {

[[noreturn]] void lose(KvLossReason reason, const std::string& why) { throw KvLost(reason, why); }
[[noreturn]] void differs(const std::string& why) { lose(KvLossReason::incompatible, why); }

bool is_latent(const KvLayerGeometry& layer) { return layer.planes == 1; }

// Of "model.layers.12.self_attn.attn" 12.
std::optional<int> layer_number(std::string_view name) {
  constexpr std::string_view kBefore = "layers.";
  const auto at = name.find(kBefore);
  if (at == std::string_view::npos) return std::nullopt;
  int number = 0;
  const char* const begin = name.data() + at + kBefore.size();
  const auto read = std::from_chars(begin, name.data() + name.size(), number);
  return read.ec == std::errc() ? std::optional(number) : std::nullopt;
}

// Which release of vLLM would have said so, for whoever has to set it.
std::string profile_with_hash(const NixlSelf& self, const std::string& hash) {
  for (const NixlProfile& profile : nixl_profiles()) {
    CompatibilityFactors factors = self.factors;
    factors.vllm_version = profile.vllm_version;
    factors.connector_version = profile.connector_version;
    if (compatibility_hash(factors, profile) == hash) return std::string(profile.name);
  }
  return "";
}

void check_hash(const NixlSelf& self, const NixlHandshake& handshake) {
  const std::string ours = compatibility_hash(self.factors, self.profile);
  if (!self.compare_hash || handshake.hash == ours) return;
  CompatibilityFactors factors = self.factors;
  if (factors.cache_dtype == "fp8") factors.cache_dtype = "fp8_e4m3";  // the same by another name
  if (handshake.hash == compatibility_hash(factors, self.profile)) return;
  const std::string other = profile_with_hash(self, handshake.hash);
  if (!other.empty())
    differs(fmt::format("compatibility_hash is that of NixlConfig::profile {}, not of {}", other,
                        self.profile.name));
  differs(
      fmt::format("compatibility_hash is {} here and {} there, and that of no known profile: "
                  "the model's name, dtype or attention backend is another (hashed here: {})",
                  ours, handshake.hash, compatibility_json(self.factors, self.profile)));
}

NixlMemory memory_of(const NixlMetadata& metadata, const AgentBlob& blob) {
  for (const std::int32_t memory : metadata.memories)
    if (memory != metadata.memories.front()) differs("region_mem_types of the peer are mixed");
  for (const NixlMemory memory : {NixlMemory::dram, NixlMemory::vram})
    if (blob.covers(static_cast<std::int32_t>(memory), metadata.base_addresses.front(), 1))
      return memory;
  lose(KvLossReason::corrupt, "kv_caches_base_addr is not in memory that the peer's agent offers");
}

// A state begins with a block that is named, and ends within it.
void check_states_offered(const NixlSelf& self, const NixlMetadata& metadata, const AgentBlob& blob,
                          NixlMemory memory) {
  const auto ratio = static_cast<std::uint64_t>(metadata.kernel_blocks_per_block);
  const std::uint64_t bytes = metadata.state_bytes[0] + metadata.state_bytes[1];
  for (std::size_t i = 0; i < self.geometry.layers.size(); ++i) {
    const KvLayerGeometry& layer = self.geometry.layers[i];
    if (!layer.is_state()) continue;
    const std::size_t region = self.regions.region_of_layer[i];
    const std::uint64_t apart = metadata.block_strides[region] * ratio;
    if (bytes > apart)
      differs(fmt::format("the state of layer {} has {} bytes there, and its blocks {}", layer.name,
                          bytes, apart));
    const std::uint64_t blocks = num_region_blocks(metadata, region) / ratio;
    if (blocks == 0 || !blob.covers(static_cast<std::int32_t>(memory),
                                    metadata.base_addresses[region], apart * (blocks - 1) + bytes))
      lose(KvLossReason::corrupt,
           fmt::format("the states of layer {} are not in memory that the peer's agent offers",
                       layer.name));
  }
}

// Every block of every region lies in memory that may be read.
void check_offered(const NixlSelf& self, const NixlMetadata& metadata, const AgentBlob& blob,
                   NixlMemory memory) {
  const auto kind = static_cast<std::int32_t>(memory);
  for (std::size_t i = 0; i < metadata.base_addresses.size(); ++i) {
    const std::uint64_t blocks = num_region_blocks(metadata, i);
    const std::uint64_t bytes =
        blocks == 0 ? 1 : metadata.block_strides[i] * (blocks - 1) + metadata.block_lens[i];
    if (!blob.covers(kind, metadata.base_addresses[i], bytes))
      lose(KvLossReason::corrupt,
           fmt::format("region {} is not in memory that the peer's agent offers", i));
  }
  check_states_offered(self, metadata, blob, memory);
  if (metadata.quire && !blob.covers(static_cast<std::int32_t>(NixlMemory::dram),
                                     metadata.quire->sums_address, metadata.num_blocks * 8))
    lose(KvLossReason::corrupt, "the sums are not in memory that the peer's agent offers");
}

// What lands is cut as the peer's blocks are, so that sizes of blocks are no question.
void check_region(const NixlSelf& self, const NixlMetadata& metadata, std::size_t layer,
                  int num_ranks) {
  const KvLayerGeometry& geometry = self.geometry.layers[layer];
  const std::uint64_t theirs = metadata.block_lens[self.regions.region_of_layer[layer]];
  const auto whole =
      static_cast<std::uint64_t>(block_bytes(geometry, metadata.block_size, geometry.heads));
  const FitInput fit{.ranks = ranks_of(geometry, num_ranks),
                     .local = {metadata.block_size,
                               metadata.kernel_blocks_per_block,
                               {&whole, 1},
                               self.profile.layout},
                     .remote = {metadata.block_size,
                                metadata.kernel_blocks_per_block,
                                {&theirs, 1},
                                metadata.layout},
                     .rules = {.lens_may_differ = true, .joins_replicated = true}};
  const auto problem = peer_misfit(fit);
  if (!problem) return;
  if (problem->misfit == Misfit::layout_differs)
    differs(fmt::format("kv_cache_layout is {} there; {} reads {}", metadata.layout,
                        self.profile.name, self.profile.layout));
  const auto sources = source_ranks(fit.ranks).attention.size();
  differs(fmt::format(
      "{}: block_lens of layer {} are {} here and {} there, for {} tokens and {} "
      "heads of {} {}",
      name_of(problem->misfit), geometry.name, whole / sources, theirs, metadata.block_size,
      static_cast<std::size_t>(geometry.heads) / sources, geometry.head_size, geometry.dtype));
}

// A region is named after the first of the layers that share it.
void check_names(const NixlSelf& self, const NixlMetadata& metadata) {
  for (std::size_t region = 0; region < metadata.region_names.size(); ++region) {
    const auto theirs = layer_number(metadata.region_names[region]);
    const auto ours = std::ranges::find(self.regions.region_of_layer, region);
    const auto layer = static_cast<std::size_t>(ours - self.regions.region_of_layer.begin());
    const auto number = layer_number(self.geometry.layers[layer].name);
    if (theirs && number && *theirs != *number)
      differs(fmt::format("region {} is of layer {} here and of {} there", region,
                          self.geometry.layers[layer].name, metadata.region_names[region]));
  }
}

std::string sizes_text(std::uint64_t conv, std::uint64_t rest) {
  return fmt::format("[{}, {}]", conv, rest);
}

// Of one rank there: its part of the convolution's bytes, and of the rest.
void check_state_sizes(const NixlSelf& self, const NixlMetadata& metadata, int num_ranks) {
  const KvStateGeometry* const state = first_state(self.geometry);
  const auto [conv, rest] = metadata.state_bytes;
  const auto ranks = static_cast<std::uint64_t>(num_ranks);
  // Which of its rows are drafts' is not said on the wire.
  if (state != nullptr && !self.geometry.draft_fingerprint.empty() && !metadata.quire)
    differs("recurrent states beside a draft model are read from Quire servers only");
  if (state != nullptr && !divides(*state, num_ranks))
    differs(fmt::format("tp_size is {} there, which does not divide this model's recurrent states",
                        num_ranks));
  const StateBytes own = state == nullptr ? StateBytes{} : state_bytes(*state);
  const auto own_conv = static_cast<std::uint64_t>(own.conv());
  const auto own_rest = static_cast<std::uint64_t>(own.rest);
  if (conv == own_conv / ranks && rest == own_rest / ranks) return;
  differs(fmt::format("ssm_sizes are {} here and {} there",
                      sizes_text(own_conv / ranks, own_rest / ranks), sizes_text(conv, rest)));
}

// Whatever its number of ranks, a Quire server answers as one.
void check_extension(const NixlSelf& self, const KvSource& source, const NixlMetadata& metadata) {
  if (!metadata.quire) return;
  if (source.tensor_ranks != 1)
    differs(fmt::format("tp_size is said to be {}; a Quire server, which this is, has 1",
                        source.tensor_ranks));
  const auto welcome = decode_kv<KvWelcome>(metadata.quire->geometry);
  if (!welcome) lose(KvLossReason::corrupt, "the geometry of a Quire server is broken");
  if (const std::string release = protocol_difference(*welcome); !release.empty()) differs(release);
  const std::string difference = geometry_difference(self.geometry, welcome->geometry);
  if (!difference.empty()) differs(difference);
}

void check_metadata(const NixlSelf& self, const KvSource& source, const NixlMetadata& metadata) {
  if (metadata.engine != source.engine)
    lose(KvLossReason::expired,
         fmt::format("remote_engine_id is {} in the request, but {} answers: it has been started "
                     "again, or it is another",
                     source.engine, metadata.engine));
  if (metadata.dcp_size != 1 || metadata.pcp_size != 1)
    differs(fmt::format("dcp_size {} and pcp_size {} there; only 1 is read", metadata.dcp_size,
                        metadata.pcp_size));
  check_extension(self, source, metadata);
  check_state_sizes(self, metadata, source.tensor_ranks);
  if (!reads_blocks_of(metadata.attention_backend, self.geometry))
    differs(fmt::format("attn_backend_name is {} there; blocks of {} are read",
                        metadata.attention_backend, kReadBackends));
  const std::size_t wanted = self.regions.num_regions;
  if (metadata.base_addresses.size() != wanted)
    differs(fmt::format("{} regions hold this model's cache here and {} there", wanted,
                        metadata.base_addresses.size()));
  for (std::size_t i = 0; i < self.geometry.layers.size(); ++i)
    if (!self.geometry.layers[i].is_state()) check_region(self, metadata, i, source.tensor_ranks);
  check_names(self, metadata);
}

template <class T>
T value_or_lose(Result<T> result) {
  if (!result) lose(KvLossReason::corrupt, result.error().detail);
  return std::move(*result);
}

}  // namespace

bool reads_blocks_of(std::string_view attention_backend, const KvGeometry& geometry) {
  return attention_backend == "FLASH_ATTN" || attention_backend == "TRITON_ATTN" ||
         std::ranges::all_of(geometry.layers, is_latent);
}

RankPair ranks_of(const KvLayerGeometry& layer, int num_ranks) {
  const RankPair pair{
      .remote_ranks = num_ranks, .kv_heads = layer.heads, .has_latents = is_latent(layer)};
  const bool divides =
      num_ranks <= layer.heads ? layer.heads % num_ranks == 0 : num_ranks % layer.heads == 0;
  if (!divides && !pair.has_latents)
    differs(
        fmt::format("tp_size is {} there, which does not divide the {} heads of keys of layer {}",
                    num_ranks, layer.heads, layer.name));
  return pair;
}

std::uint64_t num_region_blocks(const NixlMetadata& metadata, std::size_t region) {
  return metadata.region_blocks.empty() ? metadata.num_blocks : metadata.region_blocks[region];
}

NixlPeerRank read_peer_rank(const NixlSelf& self, const KvSource& source,
                            std::span<const std::string> frames) {
  if (frames.empty()) lose(KvLossReason::corrupt, "the peer's answer is empty");
  // REQ has taken the empty frame away; the second, the peer's clock, is of no use here.
  const NixlHandshake handshake = value_or_lose(parse_handshake(frames.front()));
  check_hash(self, handshake);
  NixlPeerRank peer;
  peer.metadata = value_or_lose(parse_metadata(handshake.metadata, self.profile));
  const AgentBlob blob = value_or_lose(parse_agent_blob(peer.metadata.agent));
  peer.agent_name = blob.name;
  check_metadata(self, source, peer.metadata);
  peer.memory = memory_of(peer.metadata, blob);
  check_offered(self, peer.metadata, blob, peer.memory);
  return peer;
}

std::vector<std::string> engines_named(const NixlSelf& self, std::span<const std::string> frames) {
  const auto handshake =
      frames.empty() ? Result<NixlHandshake>(Error{}) : parse_handshake(frames.front());
  if (!handshake) return {};
  auto metadata = parse_metadata(handshake->metadata, self.profile);
  return metadata ? std::vector{std::move(metadata->engine)} : std::vector<std::string>();
}

}  // namespace quire
