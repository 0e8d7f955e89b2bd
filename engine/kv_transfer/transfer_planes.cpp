// TransferConnector: the plane that carries its bytes.

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/kv_transfer/blocks/shape.h"
#include "engine/kv_transfer/mooncake/plane.h"
#include "engine/kv_transfer/nixl/plane.h"
#include "engine/kv_transfer/nixl/push_plane.h"
#include "engine/kv_transfer/quire/plane.h"
#include "engine/kv_transfer/transfer_connector.h"

namespace quire {
namespace {

std::vector<int> groups_of(const TransferSetup& setup) {
  std::vector<int> groups;
  for (const LayerCache& layer : setup.layers) groups.push_back(layer.group);
  return groups;
}

// The first layer of the target's that has heads.
const KvLayerGeometry& attention_of(const KvGeometry& geometry) {
  const auto found = std::ranges::find_if(
      geometry.layers, [](const KvLayerGeometry& layer) { return !layer.is_state(); });
  return found == geometry.layers.end() ? geometry.layers.front() : *found;
}

// What vLLM servers compare first.
NixlThreadOptions nixl_options(const NixlConfig& config, const KvGeometry& geometry,
                               const TransferSetup& setup) {
  check_block_geometry("nixl", geometry, true);
  auto profile = find_nixl_profile(config.profile);
  if (!profile) throw Failure(profile.error());
  NixlThreadOptions options;
  options.attention_backend = config.peer_attention.empty() ? "FLASH_ATTN" : config.peer_attention;
  if (!reads_blocks_of(options.attention_backend, geometry))
    throw Failure(Error{ErrorCode::unsupported,
                        fmt::format("NixlConfig::peer_attention is {}; blocks of {} are read",
                                    options.attention_backend, kReadBackends),
                        "NixlConfig::peer_attention"});
  options.self.geometry = geometry;
  options.self.regions = block_regions(groups_of(setup));
  options.self.profile = *profile;
  options.self.compare_hash = config.compare_hash.value_or(true);
  CompatibilityFactors& factors = options.self.factors;
  factors.vllm_version = profile->vllm_version;
  factors.connector_version = profile->connector_version;
  const KvLayerGeometry& attention = attention_of(geometry);
  factors.model = setup.hashed.model;
  factors.dtype = "torch." + setup.hashed.dtype;
  factors.num_kv_heads = attention.heads;
  factors.head_size = attention.head_size;
  factors.num_hidden_layers = setup.hashed.num_hidden_layers;
  if (attention.dtype == name_of(DType::fp8_e4m3)) factors.cache_dtype = "fp8";
  factors.draft_method = setup.hashed.draft_method;
  // Such states are for Quire servers only: vLLM has no method of that name.
  if (geometry.has_states() && !factors.draft_method.empty())
    factors.draft_method = "quire-" + factors.draft_method;
  factors.draft_model = setup.hashed.draft_model;
  factors.attention_backend = options.attention_backend;
  factors.pushes = config.pushes;
  return options;
}

}  // namespace

void TransferConnector::start_local(TransferSetup& setup, std::chrono::seconds lease) {
  QuirePlaneOptions options;
  if (config_.prefills()) {
    kept_.emplace(std::move(setup.buffers.kept), lease, std::move(setup.buffers.kept_descriptor));
    options.listen = listen_;
    options.sender.engine = engine_;
    options.sender.geometry = geometry_;
  }
  if (config_.decodes()) {
    arriving_.emplace(std::move(setup.buffers.arriving));
    options.receiver.geometry = geometry_;
    options.receiver.renew_every = std::chrono::nanoseconds(lease) / 6;
    // On this host several lines are slower than one.
    if (peers_.are_here()) options.receiver.max_lines = 1;
    options.receiver.may_ask = [this](const SocketAddress& peer) { return peers_.allows(peer); };
  }
  plane_ = make_quire_plane(std::move(options), kept_ ? &*kept_ : nullptr,
                            arriving_ ? &*arriving_ : nullptr, std::move(setup.wake));
}

void TransferConnector::start_nixl(TransferSetup& setup, std::chrono::seconds lease) {
  NixlPlaneOptions options{.thread = nixl_options(config_.nixl, geometry_, setup), .puller = {}};
  const NixlSelf& self = options.thread.self;
  options.thread.library = &nixl_.emplace(config_.nixl.library);
  options.thread.engine = engine_;
  options.puller.renew_every = std::chrono::nanoseconds(lease) / 6;
  if (config_.prefills()) {
    exports_.emplace(std::move(setup.buffers.kept), geometry_, self.regions, self.order(),
                     nixl_scratch_bytes(geometry_, setup.longest_prompt), lease);
    options.thread.listen = listen_;
  }
  if (config_.decodes()) arriving_.emplace(std::move(setup.buffers.arriving));
  plane_ = make_nixl_plane(std::move(options), exports_ ? &*exports_ : nullptr,
                           arriving_ ? &*arriving_ : nullptr, std::move(setup.wake));
}

void TransferConnector::start_nixl_push(TransferSetup& setup, std::chrono::seconds lease) {
  NixlPushPlaneOptions options;
  options.thread = nixl_options(config_.nixl, geometry_, setup);
  if (!options.thread.self.profile.has_push())
    throw Failure(Error{ErrorCode::unsupported,
                        fmt::format("NixlConfig::profile is {}, which has no NixlPushConnector",
                                    options.thread.self.profile.name),
                        "NixlConfig::profile"});
  options.thread.library = &nixl_.emplace(config_.nixl.library);
  options.thread.engine = engine_;
  options.thread.listen = listen_;
  if (config_.peer_block_size > 0) options.block_size = config_.peer_block_size;
  options.sender.peers = peers_;
  options.receiver.renew_every = std::chrono::nanoseconds(lease) / 6;
  if (config_.prefills()) kept_.emplace(std::move(setup.buffers.kept), lease);
  if (config_.decodes()) arriving_.emplace(std::move(setup.buffers.arriving));
  plane_ = make_nixl_push_plane(std::move(options), kept_ ? &*kept_ : nullptr,
                                arriving_ ? &*arriving_ : nullptr, std::move(setup.wake));
}

void TransferConnector::start_mooncake(TransferSetup& setup, std::chrono::seconds lease) {
  check_block_geometry("mooncake", geometry_, false);
  MooncakePlaneOptions options;
  options.self.geometry = geometry_;
  options.self.regions = block_regions(groups_of(setup));
  if (config_.peer_block_size > 0) options.self.block_size = config_.peer_block_size;
  options.listen = listen_;
  options.peers = peers_;
  options.keeper.engine = engine_;
  options.keeper.data_parallel_rank = static_cast<int>(setup.engine.value);
  options.keeper.wait_for_prefill = lease;
  if (config_.prefills()) kept_.emplace(std::move(setup.buffers.kept), lease);
  if (config_.decodes()) arriving_.emplace(std::move(setup.buffers.arriving));
  plane_ = make_mooncake_plane(std::move(options), kept_ ? &*kept_ : nullptr,
                               arriving_ ? &*arriving_ : nullptr, std::move(setup.wake));
}

}  // namespace quire
