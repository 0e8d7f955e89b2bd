#include "engine/kv_transfer/transfer_connector.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <utility>

#include "base/log.h"
#include "engine/kv_transfer/frames.h"

namespace quire {
namespace {

constexpr int kDefaultLease = 30;  // seconds, as vLLM's

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
  if (parsed->is_unix()) {
    parsed->path += fmt::format(".{}", engine.value);
  } else if (parsed->port != 0) {
    parsed->port = static_cast<std::uint16_t>(parsed->port + engine.value);
  }
  return *parsed;
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
      key_prefix_(random_name(2)),
      pages_(device, std::move(setup.layers)) {
  const std::chrono::seconds lease(config_.lease_seconds.value_or(kDefaultLease));
  TransferThreadOptions options;
  if (config_.prefills()) {
    kept_.emplace(std::move(setup.buffers.kept), lease);
    listen_ = own_address(config_.listen, setup.engine);
    options.listen = listen_;
    options.sender.engine = engine_;
    options.sender.geometry = geometry_;
  }
  if (config_.decodes()) {
    arriving_.emplace(std::move(setup.buffers.arriving));
    options.receiver.geometry = geometry_;
    options.receiver.renew_every = std::chrono::nanoseconds(lease) / 6;
  }
  thread_ =
      std::make_unique<TransferThread>(std::move(options), kept_ ? &*kept_ : nullptr,
                                       arriving_ ? &*arriving_ : nullptr, std::move(setup.wake));
  if (kept_ && !listen_.is_unix()) listen_.port = thread_->port();
}

TransferConnector::~TransferConnector() = default;

Result<void> TransferConnector::admit(RequestId id, const std::string& text,
                                      const SamplingParams& sampling,
                                      std::vector<TokenId>& prompt) {
  auto params = parse_transfer_params(text, peers_);
  if (!params) return params.error();
  // All of the prompt is wanted, or there is nothing but its last token.
  if (params->source && (!sampling.reads_prefix_cache() || prompt.size() < 2)) {
    thread_->watch(id, *params->source);
    thread_->release(id);
    return {};
  }
  if (params->source) return admit_source(*params, id, prompt);
  if (!params->keep) return {};
  if (!config_.prefills())
    return refuse("do_remote_decode", "needs a server with KvTransferConfig::role prefill or both");
  if (sampling.max_tokens != 1)
    return refuse("do_remote_decode",
                  fmt::format("needs max_tokens 1, not {}: whoever fetches it goes on from the "
                              "prompt",
                              sampling.max_tokens));
  if (has_states_ && sampling.prompt_logprobs)
    return refuse("do_remote_decode",
                  "does not work with prompt_logprobs on a model with recurrent states, whose last "
                  "prompt token is left to whoever goes on");
  if (prompt.size() < 2) return {};  // whoever continues computes the last token himself
  // Of a state there is no part: it must be the one that the last token follows.
  if (has_states_) prompt.pop_back();
  entries_[id].params = std::move(*params);
  return {};
}

Result<void> TransferConnector::admit_source(TransferParams& params, RequestId id,
                                             std::span<const TokenId> prompt) {
  const int expected = num_to_keep(static_cast<int>(prompt.size()));
  if (params.num_tokens != expected) {
    const Error mismatch = refuse(
        "remote_num_tokens",
        fmt::format("is {}; this request's prompt would have {}", params.num_tokens, expected));
    if (config_.load_failure_policy == KvLoadFailurePolicy::fail) return mismatch;
    lose(KvLossReason::prompt, id, mismatch.detail);
    thread_->watch(id, *params.source);
    thread_->release(id);
    return {};
  }
  thread_->watch(id, *params.source);
  Entry& entry = entries_[id];
  entry.prompt_hash = prompt_hash(prompt.first(static_cast<std::size_t>(expected)));
  entry.params = std::move(params);
  return {};
}

void TransferConnector::forget(RequestId id) {
  if (entries_.erase(id) > 0 && config_.decodes()) thread_->release(id);
}

std::optional<ExternalMatch> TransferConnector::match(const Request& request, int num_computed) {
  const auto found = entries_.find(request.id());
  if (found == entries_.end()) return ExternalMatch{};
  Entry& entry = found->second;
  if (!entry.params.source || entry.asked) return ExternalMatch{};
  const int missing = entry.params.num_tokens - num_computed;
  if (missing > 0) return ExternalMatch{.num_tokens = missing, .async = true};
  entry.asked = true;  // all of it is here already
  thread_->release(request.id());
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
  thread_->fetch(std::move(fetch));
}

ReleaseDecision TransferConnector::finished(const Request& request,
                                            const std::vector<std::span<const BlockId>>& blocks) {
  const auto found = entries_.find(request.id());
  if (found == entries_.end()) return {};
  Entry& entry = found->second;
  if (entry.loading) {  // its blocks stay until the fetch has ended
    entry.abandoned = true;
    thread_->cancel(request.id());
    return {};
  }
  ReleaseDecision decision;
  const bool complete =
      request.finish_reason == FinishReason::length || request.finish_reason == FinishReason::stop;
  if (entry.params.keep && complete) decision.result = keep(request, copy_of(blocks));
  if (entry.params.source && !entry.asked) thread_->release(request.id());
  entries_.erase(found);
  return decision;
}

std::span<const BlockId> TransferConnector::unshareable(const Request& request) {
  const auto found = entries_.find(request.id());
  return found == entries_.end() ? std::span<const BlockId>() : found->second.partly_filled;
}

// Where there is no room, whoever asked computes the prompt himself.
std::string TransferConnector::keep(const Request& request, const BlockTable& blocks) {
  KeptPrefill prefill;
  const int num_tokens = request.num_prompt();
  prefill.content = kv_content(geometry_, num_tokens);
  prefill.range = kept_->make_room(prefill.content.bytes);
  if (prefill.range == nullptr || !pages_.read(prefill.content, blocks, prefill.range->bytes())) {
    ++not_kept_;
    log::warn("kv_transfer.not_kept", {{"tokens", num_tokens},
                                       {"bytes", prefill.content.bytes},
                                       {"buffer", kept_->size_bytes()}});
    return {};
  }
  pages_.settle();
  prefill.generation = kept_->next_generation();
  prefill.key = fmt::format("{}-{}", key_prefix_, request.id().value);
  prefill.prompt_hash = prompt_hash(request.prompt());
  KeptDescription description;
  description.address = listen_;
  description.engine = engine_;
  description.prefill.key = prefill.key;
  description.prefill.generation = prefill.generation;
  description.num_tokens = num_tokens;
  kept_->keep(std::move(prefill));
  return transfer_result(description);
}

const TransferConnector::News& TransferConnector::take_news() {
  news_.received.clear();
  news_.invalid_blocks.clear();
  std::vector<KvFetched> fetched = thread_->take();
  for (KvFetched& one : fetched) {
    const auto found = entries_.find(one.request);
    if (found == entries_.end()) continue;
    Entry& entry = found->second;
    entry.loading = false;
    thread_->release(one.request);
    news_.received.push_back(one.request);
    if (entry.abandoned) {
      entries_.erase(found);
      continue;
    }
    arrive(one, entry);
  }
  if (fetched.empty()) return news_;
  pages_.settle();
  fetched.clear();
  thread_->room_came();
  return news_;
}

void TransferConnector::arrive(KvFetched& fetched, Entry& entry) {
  if (!fetched.loss && pages_.write(fetched.content, entry.blocks, fetched.range->bytes())) {
    entry.partly_filled = pages_.partly_filled(fetched.content, entry.blocks, entry.from);
    return;
  }
  lose(fetched.loss.value_or(KvLossReason::incompatible), fetched.request, fetched.detail);
  for (std::size_t group = 0; group < entry.blocks.size(); ++group) {
    const auto first = static_cast<std::size_t>(entry.from / pages_.block_size(group));
    const auto& table = entry.blocks[group];
    for (std::size_t i = first; i < table.size(); ++i)
      if (table[i] != 0) news_.invalid_blocks.push_back(table[i]);
  }
}

void TransferConnector::lose(KvLossReason reason, RequestId request, const std::string& detail) {
  ++losses_[static_cast<std::size_t>(reason)];
  const bool fails = config_.load_failure_policy == KvLoadFailurePolicy::fail;
  log::warn("kv_transfer.lost", {{"request", request.value},
                                 {"reason", kKvLossNames[static_cast<std::size_t>(reason)]},
                                 {"because", detail},
                                 {"then", fails ? "fail" : "recompute"}});
}

KvTransferStats TransferConnector::stats() const {
  KvTransferStats stats;
  const auto seconds = [](const KvTrafficCounts& counts) {
    return static_cast<double>(counts.nanoseconds) * 1e-9;
  };
  const KvTrafficCounts& sent = thread_->sent();
  const KvTrafficCounts& received = thread_->received();
  stats.sent = sent.requests;
  stats.sent_bytes = sent.bytes;
  stats.sent_seconds = seconds(sent);
  stats.received = received.requests;
  stats.received_bytes = received.bytes;
  stats.received_seconds = seconds(received);
  stats.not_kept = not_kept_;
  if (kept_) {
    stats.kept = kept_->counts().kept;
    stats.expired = kept_->counts().expired;
    stats.kept_bytes = kept_->used_bytes();
  }
  if (!arriving_) return stats;
  stats.arriving_bytes = arriving_->used();
  for (const std::int64_t count : losses_) stats.losses.push_back({count});
  return stats;
}

}  // namespace quire
