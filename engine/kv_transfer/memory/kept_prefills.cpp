#include "engine/kv_transfer/memory/kept_prefills.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/log.h"

namespace quire {
namespace {

constexpr std::size_t kMostFailed = 1 << 14;

}  // namespace

KeptPrefills::KeptPrefills(Buffer memory, std::chrono::nanoseconds lease, Descriptor shared)
    : shared_(std::move(shared)), staging_(std::move(memory)), lease_(lease) {}

void KeptPrefills::keep(KeptPrefill prefill) {
  {
    const std::lock_guard lock(mutex_);
    ++counts_.kept;
    const std::string key = prefill.key;
    entries_[key] = {std::make_shared<const KeptPrefill>(std::move(prefill)),
                     Clock::now() + lease_};
    ++num_changes_;
  }
  notify_();
}

bool KeptPrefills::begin(KeptPrefill prefill) {
  {
    const std::lock_guard lock(mutex_);
    const std::string key = prefill.key;
    Entry entry{std::make_shared<const KeptPrefill>(std::move(prefill)), Clock::time_point::max()};
    const auto [found, is_new] = entries_.try_emplace(key);
    if (!is_new && !has_failed(found->second)) return false;
    found->second = std::move(entry);
    ++num_changes_;
  }
  notify_();
  return true;
}

void KeptPrefills::progressed(const KeptPrefill& prefill, int num_ready) {
  prefill.progress->ready = num_ready;
  notify_();
}

bool KeptPrefills::finish(const KeptPrefill& prefill) {
  {
    const std::lock_guard lock(mutex_);
    Entry* entry = entry_of(prefill.key, prefill.generation);
    if (entry == nullptr || entry->prefill->progress != prefill.progress) return false;
    ++counts_.kept;
    entry->end = Clock::now() + lease_;
  }
  progressed(prefill, prefill.content.num_tokens);
  return true;
}

void KeptPrefills::fail(const std::string& key, const KvProgress* own, KvLossReason why,
                        const std::string& elsewhere) {
  std::shared_ptr<const KeptPrefill> gone;  // its bytes go back without the lock
  {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(key);
    if (found != entries_.end() && (own == nullptr || found->second.prefill->progress.get() != own))
      return;
    KeptPrefill failed{.key = key, .content = {}, .range = nullptr};
    failed.progress =
        found == entries_.end() ? std::make_shared<KvProgress>() : found->second.prefill->progress;
    failed.progress->why = why;
    failed.progress->elsewhere = elsewhere;
    failed.progress->failed = true;
    if (found != entries_.end()) gone = std::move(found->second.prefill);
    entries_[key] = {std::make_shared<const KeptPrefill>(std::move(failed)), Clock::now() + lease_};
    failed_.push_back(key);
    ++num_changes_;
    if (failed_.size() > kMostFailed) {
      const auto oldest = entries_.find(failed_.front());
      if (oldest != entries_.end() && has_failed(oldest->second)) entries_.erase(oldest);
      failed_.pop_front();
    }
  }
  notify_();
}

bool KeptPrefills::has_failed(const Entry& entry) {
  return entry.prefill->range == nullptr && entry.prefill->progress != nullptr;
}

KeptPrefills::Entry* KeptPrefills::entry_of(const std::string& key, std::uint64_t generation) {
  const auto found = entries_.find(key);
  const bool is_it = found != entries_.end() && found->second.prefill->generation == generation;
  return is_it ? &found->second : nullptr;
}

std::shared_ptr<const KeptPrefill> KeptPrefills::find(const std::string& key,
                                                      std::uint64_t generation) const {
  const std::lock_guard lock(mutex_);
  const Entry* entry = const_cast<KeptPrefills*>(this)->entry_of(key, generation);
  if (entry == nullptr || entry->end <= Clock::now()) return nullptr;
  return entry->prefill;
}

void KeptPrefills::renew(const std::string& key, std::uint64_t generation) {
  const std::lock_guard lock(mutex_);
  if (Entry* entry = entry_of(key, generation))
    entry->end = std::max(entry->end, Clock::now() + lease_ * 2 / 3);
}

void KeptPrefills::release(const std::string& key, std::uint64_t generation) {
  std::shared_ptr<const KeptPrefill> gone;  // its bytes go back without the lock
  const std::lock_guard lock(mutex_);
  Entry* entry = entry_of(key, generation);
  if (entry == nullptr) return;
  gone = std::move(entry->prefill);
  entries_.erase(key);
}

std::optional<KeptPrefills::Clock::time_point> KeptPrefills::expire(Clock::time_point now) {
  std::vector<std::string> keys;
  return expire(now, keys);
}

std::optional<KeptPrefills::Clock::time_point> KeptPrefills::expire(
    Clock::time_point now, std::vector<std::string>& keys) {
  std::vector<std::shared_ptr<const KeptPrefill>> gone;
  std::optional<Clock::time_point> next;
  {
    const std::lock_guard lock(mutex_);
    for (auto entry = entries_.begin(); entry != entries_.end();) {
      const Clock::time_point end = entry->second.end;
      if (end <= now) {
        gone.push_back(std::move(entry->second.prefill));
        entry = entries_.erase(entry);
        counts_.expired += gone.back()->range == nullptr ? 0 : 1;
        continue;
      }
      next = next ? std::min(*next, end) : end;
      ++entry;
    }
  }
  std::erase_if(gone, [](const auto& prefill) { return prefill->range == nullptr; });
  for (const auto& prefill : gone) {
    keys.push_back(prefill->key);
    log::warn("kv_transfer.expired",
              {{"request", prefill->key}, {"bytes", prefill->content.bytes}});
  }
  return next;
}

KeptPrefills::Counts KeptPrefills::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

}  // namespace quire
