#include "engine/kv_transfer/transfer_connector.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <utility>

#include "base/log.h"
#include "engine/kv_nixl/push_registration.h"
#include "engine/kv_transfer/content/frames.h"
#include "engine/kv_transfer/mooncake_params.h"

namespace quire {
namespace {

constexpr int kDefaultLease = 30;    // seconds, as vLLM's
constexpr int kMooncakeLease = 480;  // the same of its MooncakeConnector, without signs of life
constexpr std::uint32_t kLastPort = 65535;

std::string random_name(int words) {
  std::random_device random;
  std::string name;
  for (int i = 0; i < words; ++i) name += fmt::format("{:08x}", random());
  return name;
}

Error refuse(const std::string& member, const std::string& why) {
  return {ErrorCode::invalid_argument, "kv_transfer_params." + member + " " + why,
          "/kv_transfer_params/" + member};
}

// Engines of one process stand beside each other.
SocketAddress own_address(const std::string& text, EngineId engine) {
  auto parsed = parse_socket_address(text);
  if (!parsed)
    throw Failure(Error{ErrorCode::invalid_argument,
                        "KvTransferConfig::listen " + parsed.error().detail,
                        "KvTransferConfig::listen"});
  if (engine.value == 0) return *parsed;
  if (!parsed->is_unix() && parsed->port + engine.value > kLastPort)
    throw Failure(Error{
        ErrorCode::invalid_argument,
        fmt::format("KvTransferConfig::listen is {}: engine {} would listen at port {}, and {} is "
                    "the last one",
                    text, engine.value, parsed->port + engine.value, kLastPort),
        "KvTransferConfig::listen"});
  if (parsed->is_unix()) {
    parsed->path += fmt::format(".{}", engine.value);
  } else if (parsed->port != 0) {
    parsed->port = static_cast<std::uint16_t>(parsed->port + engine.value);
  }
  return *parsed;
}

std::unique_ptr<CachePages> make_pages(Device& device, const TransferSetup& setup) {
  if (setup.ranks == nullptr) return std::make_unique<CachePages>(device, setup.layers);
  return std::make_unique<DividedPages>(device, setup.layers, setup.rank_rows, *setup.ranks);
}

BlockTable copy_of(const std::vector<std::span<const BlockId>>& blocks) {
  BlockTable table;
  for (const auto& group : blocks) table.emplace_back(group.begin(), group.end());
  return table;
}

}  // namespace

TransferConnector::TransferConnector(Device& device, TransferSetup setup)
    : config_(std::move(setup.config)),
      geometry_(std::move(setup.geometry)),
      has_states_(geometry_.has_states()),
      peers_(config_.peers),
      engine_(random_name(4)),
      pages_(make_pages(device, setup)) {
  if (config_.decodes())  // the ranks of a divided model copy together, as the engine's thread asks
    filler_.emplace(*pages_, device.is_host_memory() && setup.ranks == nullptr, setup.wake);
  const int usual = config_.uses_mooncake() ? kMooncakeLease : kDefaultLease;
  const std::chrono::seconds lease(config_.lease_seconds.value_or(usual));
  if (!config_.listen.empty()) listen_ = own_address(config_.listen, setup.engine);
  if (config_.uses_mooncake()) {
    start_mooncake(setup, lease);
  } else {
    config_.pushes_nixl() ? start_nixl_push(setup, lease)
    : config_.uses_nixl() ? start_nixl(setup, lease)
                          : start_local(setup, lease);
  }
  if (config_.prefills() && !listen_.is_unix()) listen_.port = plane_->port();
}

TransferConnector::~TransferConnector() = default;

// Whoever was told its name waits for it.
void TransferConnector::fail_kept(const TransferParams& params, KvLossReason why) {
  const std::string& name = params.push_key.empty() ? params.kept_name : params.push_key;
  if (!name.empty()) kept_->fail(name, nullptr, why);
}

Result<void> TransferConnector::admit(RequestId id, Asked asked, const SamplingParams& sampling,
                                      std::vector<TokenId>& prompt) {
  auto params = parse_transfer_params(asked.params, peers_, config_.plane.value_or(KvPlane::local),
                                      config_.pushes_nixl());
  if (!params) return params.error();
  if (params->source && !config_.decodes())
    return refuse("do_remote_prefill", "needs a server with KvTransferConfig::role decode or both");
  if (config_.pushes_nixl()) name_push(*params, asked.name);
  // All of the prompt is wanted, or there is nothing but its last token.
  if (params->source && (!sampling.reads_prefix_cache() || prompt.size() < 2)) {
    plane_->watch(id, *params->source);
    plane_->release(id);
    return {};
  }
  if (params->source) return admit_source(*params, id, prompt);
  if (!params->keep) return {};
  if (!config_.prefills())
    return refuse("do_remote_decode", "needs a server with KvTransferConfig::role prefill or both");
  const auto refuse_prefill = [&](std::string why) {
    fail_kept(*params, KvLossReason::refused);
    return refuse("do_remote_decode", std::move(why));
  };
  if (sampling.max_tokens != 1)
    return refuse_prefill(
        fmt::format("needs max_tokens 1, not {}: whoever fetches it goes on from the "
                    "prompt",
                    sampling.max_tokens));
  if (has_states_ && sampling.prompt_logprobs)
    return refuse_prefill(
        "does not work with prompt_logprobs on a model with recurrent states, whose last "
        "prompt token is left to whoever goes on");
  if (prompt.size() < 2) {  // whoever continues computes the last token itself
    fail_kept(*params, KvLossReason::refused);
    return {};
  }
  if (!params->push_key.empty() && !pushed_) pushed_.emplace(*kept_, *pages_, geometry_);
  // Of a state there is no part: it must be the one that the last token follows.
  if (has_states_) prompt.pop_back();
  const std::uint64_t hash = prompt_hash(prompt);
  if (is_of_another(params->kept_name, hash))
    return refuse("transfer_id",
                  "names another prompt's prefill, which is computed or waits to be fetched");
  Entry& entry = entries_[id];
  entry.params = std::move(*params);
  entry.prompt_hash = hash;
  return {};
}

// The same prompt again, as of a proxy that retries, may take the place of the first.
bool TransferConnector::is_of_another(const std::string& kept_name, std::uint64_t hash) const {
  if (kept_name.empty()) return false;
  const auto kept = kept_->find(kept_name, 0);
  if (kept != nullptr && kept->range != nullptr && kept->prompt_hash != hash) return true;
  return std::ranges::any_of(entries_, [&](const auto& one) {
    return one.second.params.kept_name == kept_name && one.second.prompt_hash != hash;
  });
}

// Both sides' requests have one name but for its end, as vLLM's servers make it from X-Request-Id:
// that of whoever prefills, where the answer of that one is told.
void TransferConnector::name_push(TransferParams& params, const std::string& own) {
  if (params.keep) params.push_key = own.empty() ? random_name(4) : own;
  if (!params.source) return;
  const std::string& key = params.source->prefill.key;
  const std::string_view base = base_request_name(key);
  params.source->request = base != key || own.empty() ? std::string(base) : own;
}

Result<void> TransferConnector::admit_source(TransferParams& params, RequestId id,
                                             std::span<const TokenId> prompt) {
  const int expected = num_to_keep(static_cast<int>(prompt.size()));
  if (params.num_tokens == 0) params.num_tokens = expected;
  if (params.num_tokens != expected) {
    const Error mismatch = refuse(
        "remote_num_tokens",
        fmt::format("is {}; this request's prompt would have {}", params.num_tokens, expected));
    lose(KvLossReason::prompt, id, mismatch.detail);
    plane_->watch(id, *params.source);
    plane_->release(id);
    if (config_.load_failure_policy == KvLoadFailurePolicy::fail) return mismatch;
    return {};
  }
  plane_->watch(id, *params.source);
  Entry& entry = entries_[id];
  entry.prompt_hash = prompt_hash(prompt.first(static_cast<std::size_t>(expected)));
  entry.params = std::move(params);
  return {};
}

void TransferConnector::forget(RequestId id, bool may_come_again) {
  const auto found = entries_.find(id);
  if (found != entries_.end() && is_pushed(found->second))
    pushed_->abandon(id, found->second.params.push_key);
  if (found != entries_.end() && !found->second.params.kept_name.empty())
    fail_kept(found->second.params, KvLossReason::refused);
  if (entries_.erase(id) == 0 || !config_.decodes()) return;
  may_come_again ? plane_->unwatch(id) : plane_->release(id);
}

void TransferConnector::refused(Asked asked) {
  auto params = parse_transfer_params(asked.params, peers_, config_.plane.value_or(KvPlane::local),
                                      config_.pushes_nixl());
  if (!params) return;
  const bool has_name = !config_.pushes_nixl() || !asked.name.empty();
  if (config_.pushes_nixl()) name_push(*params, asked.name);
  if (params->keep && has_name) not_here(params->push_key + params->kept_name, {});
  if (!params->source || !config_.decodes()) return;
  const RequestId id{~++num_refused_};  // no engine counts so far
  plane_->watch(id, *params->source);
  plane_->release(id);
}

// Another request by that name may be computed here yet.
void TransferConnector::not_here(const std::string& name, const std::string& elsewhere) {
  const bool is_here = std::ranges::any_of(entries_, [&](const auto& one) {
    return one.second.params.push_key == name || one.second.params.kept_name == name;
  });
  if (kept_ && !name.empty() && !is_here)
    kept_->fail(name, nullptr, KvLossReason::refused, elsewhere);
}

std::optional<ExternalMatch> TransferConnector::match(const Request& request, int num_computed) {
  const auto found = entries_.find(request.id());
  if (found == entries_.end()) return ExternalMatch{};
  Entry& entry = found->second;
  if (!entry.params.source || entry.asked) return ExternalMatch{};
  const int missing = entry.params.num_tokens - num_computed;
  if (missing > 0) return ExternalMatch{.num_tokens = missing, .async = true};
  entry.asked = true;  // all of it is here already
  plane_->release(request.id());
  return ExternalMatch{};
}

void TransferConnector::allocated(const Request& request,
                                  const std::vector<std::span<const BlockId>>& blocks,
                                  int num_external) {
  const auto found = entries_.find(request.id());
  if (num_external == 0 || found == entries_.end()) return;
  Entry& entry = found->second;
  entry.asked = entry.loading = true;
  entry.blocks = copy_of(blocks);
  entry.from = entry.params.num_tokens - num_external;
  KvFetch fetch;
  fetch.request = request.id();
  fetch.source = *entry.params.source;
  fetch.num_tokens = entry.params.num_tokens;
  fetch.from = entry.from;
  fetch.prompt_hash = entry.prompt_hash;
  plane_->fetch(std::move(fetch));
}

bool TransferConnector::follows(const Request& request) const {
  const auto found = entries_.find(request.id());
  return found != entries_.end() && is_pushed(found->second);
}

void TransferConnector::computed(const Request& request,
                                 const std::vector<std::span<const BlockId>>& blocks,
                                 int num_computed) {
  pushed_->computed(request, entries_.at(request.id()).params.push_key, copy_of(blocks),
                    num_computed);
}

ReleaseDecision TransferConnector::finished(const Request& request,
                                            const std::vector<std::span<const BlockId>>& blocks) {
  const auto found = entries_.find(request.id());
  if (found == entries_.end()) return {};
  Entry& entry = found->second;
  if (entry.loading) {  // its blocks stay until the fetch has ended
    entry.abandoned = true;
    plane_->cancel(request.id());
    filler_->cancel(request.id());
    return {};
  }
  ReleaseDecision decision;
  const bool complete =
      request.finish_reason == FinishReason::length || request.finish_reason == FinishReason::stop;
  if (entry.params.keep && complete) {
    decision.result = keep(request, copy_of(blocks), entry.params);
  } else if (is_pushed(entry)) {
    pushed_->abandon(request.id(), entry.params.push_key);
  } else if (!entry.params.kept_name.empty()) {
    fail_kept(entry.params, KvLossReason::refused);
  }
  if (entry.params.source && !entry.asked) plane_->release(request.id());
  entries_.erase(found);
  return decision;
}

std::span<const BlockId> TransferConnector::unshareable(const Request& request) {
  const auto found = entries_.find(request.id());
  return found == entries_.end() ? std::span<const BlockId>() : found->second.partly_filled;
}

// Where there is no room, whoever asked computes the prompt itself.
std::string TransferConnector::keep(const Request& request, const BlockTable& blocks,
                                    const TransferParams& params) {
  KeptDescription kept;
  kept.address = listen_;
  kept.engine = engine_;
  kept.pushed = !params.push_key.empty();
  kept.prefill.key = kept.pushed ? params.push_key
                     : !params.kept_name.empty()
                         ? params.kept_name
                         : fmt::format("{}-{}", random_name(4), request.id().value);
  if (config_.pushes_nixl()) kept.prefill.key = random_request_name(kept.prefill.key);
  kept.num_tokens = request.num_prompt();
  const bool is_kept = kept.pushed ? pushed_->finish(request, params.push_key, blocks)
                       : exports_  ? keep_blocks(request, blocks, kept)
                                   : keep_local(request, blocks, kept);
  if (is_kept && config_.uses_mooncake()) return mooncake_result(kept);
  if (is_kept) return transfer_result(kept);
  if (!params.kept_name.empty()) fail_kept(params, KvLossReason::no_room);
  ++not_kept_;
  log::warn("kv_transfer.not_kept",
            {{"tokens", request.num_prompt()},
             {"bytes", kv_content(geometry_, request.num_prompt()).bytes},
             {"buffer", exports_ ? exports_->size_bytes() : kept_->size_bytes()}});
  return {};
}

bool TransferConnector::keep_local(const Request& request, const BlockTable& blocks,
                                   KeptDescription& kept) {
  KeptPrefill prefill;
  prefill.content = kv_content(geometry_, kept.num_tokens);
  prefill.range = kept_->make_room(prefill.content.bytes);
  if (prefill.range == nullptr || !pages_->read(prefill.content, blocks, prefill.range->bytes()))
    return false;
  pages_->settle();
  // A name that both sides were told is all that the other one knows of it.
  if (!config_.uses_mooncake()) prefill.generation = kept_->next_generation();
  kept.prefill.generation = prefill.generation;
  prefill.key = kept.prefill.key;
  prefill.prompt_hash = prompt_hash(request.prompt());
  kept_->keep(std::move(prefill));
  return true;
}

bool TransferConnector::keep_blocks(const Request& request, const BlockTable& blocks,
                                    KeptDescription& kept) {
  const auto read = [&](const KvContent& layer, std::span<std::byte> bytes) {
    if (!pages_->read(layer, blocks, bytes)) return false;
    pages_->settle();
    return true;
  };
  const std::uint64_t hash = prompt_hash(request.prompt());
  auto exported = exports_->keep(kept.prefill.key, hash, kept.num_tokens, read);
  if (!exported) return false;
  kept.blocks = std::move(*exported);
  kept.prefill.generation = kNixlRegistration;
  kept.prompt_hash = hash;
  return true;
}

const TransferConnector::News& TransferConnector::take_news(std::chrono::nanoseconds patience) {
  news_.received.clear();
  news_.invalid_blocks.clear();
  if (!filler_) return news_;
  for (KvFetched& one : plane_->take()) {
    const auto found = entries_.find(one.request);
    if (found == entries_.end()) continue;
    plane_->release(one.request);
    if (one.loss || found->second.abandoned) {
      end_load(one, found->second, false);
      plane_->room_came();
    } else {
      filler_->add(std::move(one), found->second.blocks);
    }
  }
  filler_->work(patience);
  for (PageFiller::Filled& one : filler_->take()) {
    end_load(one.fetched, entries_.at(one.fetched.request), one.is_whole);
    one.fetched.range.reset();
    plane_->room_came();
  }
  return news_;
}

void TransferConnector::end_load(const KvFetched& fetched, Entry& entry, bool is_whole) {
  news_.received.push_back(fetched.request);
  if (entry.abandoned) {
    entries_.erase(fetched.request);
    return;
  }
  entry.loading = false;
  if (is_whole) {
    entry.partly_filled = pages_->partly_filled(fetched.content, entry.blocks, entry.from);
    return;
  }
  lose(fetched.loss.value_or(KvLossReason::incompatible), fetched.request, fetched.detail);
  for (std::size_t group = 0; group < entry.blocks.size(); ++group) {
    const auto first = static_cast<std::size_t>(entry.from / pages_->block_size(group));
    const auto& table = entry.blocks[group];
    for (std::size_t i = first; i < table.size(); ++i)
      if (table[i] != 0) news_.invalid_blocks.push_back(table[i]);
  }
}

}  // namespace quire
