// TransferConnector: what it says of itself.

#include "base/log.h"
#include "engine/kv_transfer/transfer_connector.h"

namespace quire {

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
  const KvTrafficCounts& sent = plane_->sent();
  const KvTrafficCounts& received = plane_->received();
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
  if (exports_) {
    stats.kept = exports_->counts().kept;
    stats.expired = exports_->counts().expired;
    stats.kept_bytes = exports_->used_bytes();
  }
  if (!arriving_) return stats;
  stats.arriving_bytes = arriving_->used();
  for (const std::int64_t count : losses_) stats.losses.push_back({count});
  return stats;
}

}  // namespace quire
