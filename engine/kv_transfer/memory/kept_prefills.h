#pragma once
// Finished prefills that other engines may fetch, each for as long as its lease. Whoever reads one
// holds it: its bytes are not used again before the last reader has gone. Any thread.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>
#include <unordered_map>

#include "engine/kv_transfer/content/content.h"
#include "engine/kv_transfer/memory/staging.h"
#include "engine/request/kv_loss.h"
#include "engine/wire/socket_address.h"

namespace quire {

// How much of a prefill is ready that others get while it is being computed.
struct KvProgress {
  std::atomic<int> ready = 0;  // tokens
  std::atomic<bool> failed = false;
  KvLossReason why = KvLossReason::refused;  // set before `failed`, as what follows
  std::string elsewhere;                     // where to ask for it instead; empty: nowhere
};

struct KeptPrefill {
  std::string key;  // what it is asked for by; nobody guesses it
  // A number that no other prefill of this process has. 0: whoever asked for it chose its key.
  std::uint64_t generation = 0;
  std::uint64_t prompt_hash = 0;
  KvContent content;
  std::shared_ptr<StagedRange> range;              // of content.bytes; null: it failed
  std::shared_ptr<KvProgress> progress = nullptr;  // null: all of it is there

  int num_ready() const { return progress ? progress->ready.load() : content.num_tokens; }
};

class KeptPrefills {
 public:
  using Clock = std::chrono::steady_clock;

  // `shared`: the descriptor of `memory`, where other processes may read it.
  KeptPrefills(Buffer memory, std::chrono::nanoseconds lease, Descriptor shared = Descriptor());

  // Room for that many bytes; null where there is none.
  std::shared_ptr<StagedRange> make_room(std::int64_t bytes) { return staging_.take(bytes); }
  // Room for bytes that are worked with and not kept.
  std::shared_ptr<StagedRange> make_room_apart(std::int64_t bytes) {
    return staging_.take_apart(bytes);
  }
  // From now on others can ask for it.
  void keep(KeptPrefill prefill);
  std::uint64_t next_generation() { return ++last_generation_; }

  // Offers a prefill that is being computed; its lease begins when all of it is there. False:
  // another one has that key, and has not failed.
  bool begin(KeptPrefill prefill);
  void progressed(const KeptPrefill& prefill, int num_ready);
  // Begins the lease of a prefill that is complete. False: it is not kept any more.
  bool finish(const KeptPrefill& prefill);
  // Tells whoever asks for a prefill, or has asked, why there is none. `own`: the progress that
  // begin() was given; null where it was not called, and then a prefill of that key stays. Only the
  // latest of very many failures are remembered.
  void fail(const std::string& key, const KvProgress* own, KvLossReason why,
            const std::string& elsewhere = {});

  // Null: never here, fetched already, or expired.
  std::shared_ptr<const KeptPrefill> find(const std::string& key, std::uint64_t generation) const;
  // Prolongs the lease to two thirds of one from now at least: whoever will fetch it is alive.
  void renew(const std::string& key, std::uint64_t generation);
  void release(const std::string& key, std::uint64_t generation);

  // Drops those whose lease has ended. The time of the next end; empty: none is kept.
  std::optional<Clock::time_point> expire(Clock::time_point now);
  // Does the same, and says whose lease has ended.
  std::optional<Clock::time_point> expire(Clock::time_point now, std::vector<std::string>& keys);
  // Called after keep(), without a lock held; set once, before the first.
  void on_kept(std::function<void()> notify) { notify_ = std::move(notify); }

  // Grows whenever find() may find a prefill that it did not find before.
  std::uint64_t num_changes() const { return num_changes_; }

  struct Counts {
    std::int64_t kept = 0, expired = 0;
  };
  Counts counts() const;
  std::int64_t used_bytes() const { return staging_.used(); }
  std::int64_t size_bytes() const { return staging_.size(); }
  std::chrono::nanoseconds lease() const { return lease_; }
  int shared_descriptor() const { return shared_.get(); }  // negative: none
  std::int64_t offset_of(const StagedRange& range) const {
    return range.bytes().data() - staging_.all().data();
  }

 private:
  struct Entry {
    std::shared_ptr<const KeptPrefill> prefill;
    Clock::time_point end;
  };
  static bool has_failed(const Entry& entry);
  Entry* entry_of(const std::string& key, std::uint64_t generation);

  const Descriptor shared_;
  StagingBuffer staging_;  // outlives what is kept in it
  const std::chrono::nanoseconds lease_;
  std::function<void()> notify_ = [] {};
  std::atomic<std::uint64_t> num_changes_ = 1;
  std::uint64_t last_generation_ = 0;  // engine thread
  mutable std::mutex mutex_;
  std::unordered_map<std::string, Entry> entries_;
  std::deque<std::string> failed_;  // keys, the latest last; some have gone or begun anew
  Counts counts_;
};

}  // namespace quire
