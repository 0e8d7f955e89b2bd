#pragma once
// How keys and values travel, whatever carries them: what the connector asks of a plane. A plane
// runs on a thread of its own, asleep while nothing travels; its methods are for the engine's.

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "engine/kv_transfer/content/content.h"
#include "engine/kv_transfer/content/frames.h"
#include "engine/kv_transfer/memory/staging.h"
#include "engine/request/kv_loss.h"
#include "engine/wire/socket_address.h"

namespace quire {

// Where a prefill is kept, as a request says it.
struct KvSource {
  SocketAddress address;
  std::string engine;  // the start of it that keeps it; of what is pushed, empty: any
  KvKey prefill;       // over NIXL the generation is that of its memory's registration
  // Over NIXL only: which blocks it lies in, by group, and how many ranks share its heads.
  std::vector<std::vector<std::int64_t>> blocks = {};
  int tensor_ranks = 1;
  std::optional<std::uint64_t> prompt_hash = {};  // of another Quire server
  bool pushed = false;  // it comes as it is computed, begun or not; the generation is 0
  std::string request =
      {};  // where it is pushed over NIXL: the name that both sides' requests share
};

struct KvFetch {
  RequestId request;
  KvSource source;
  int num_tokens = 0;
  int from = 0;  // tokens that are here already
  std::uint64_t prompt_hash = 0;
};

// How a fetch ended. Without a loss `range` holds `content`, checked.
struct KvFetched {
  RequestId request;
  std::optional<KvLossReason> loss = {};
  std::string detail = {};  // of the loss
  KvContent content = {};
  std::shared_ptr<StagedRange> range = {};
};

// A fetch, or a peer's part in one, came to nothing. `detail` may be a peer's words, of which only
// the beginning is kept: it goes into logs and answers.
class KvLost : public std::runtime_error {
 public:
  static constexpr std::size_t kMostDetail = 1000;  // bytes
  KvLost(KvLossReason reason, const std::string& detail, bool silent = false)
      : std::runtime_error(detail.substr(0, kMostDetail)), reason_(reason), silent_(silent) {}
  KvLossReason reason() const { return reason_; }
  bool is_silence() const { return silent_; }  // it was waited for in vain

 private:
  KvLossReason reason_;
  bool silent_;
};

// A peer does not have the prefill and names the address that has it.
class KvElsewhere : public KvLost {
 public:
  KvElsewhere(KvLossReason reason, const std::string& detail, std::string address)
      : KvLost(reason, detail), address_(std::move(address)) {}
  const std::string& address() const { return address_; }

 private:
  std::string address_;
};

// Counts of one direction. Any thread may read them.
struct KvTrafficCounts {
  std::atomic<std::int64_t> requests = 0, bytes = 0, nanoseconds = 0;
};

// Fetches what others keep.
class KvFetcher {
 public:
  virtual ~KvFetcher() = default;

  // Renews the prefill at whoever keeps it, until release() or unwatch().
  virtual void watch(RequestId request, KvSource source) = 0;
  virtual void fetch(KvFetch fetch) = 0;
  // Ends a fetch at once, whose result is not wanted any more; take() has it all the same.
  virtual void cancel(RequestId request) = 0;
  virtual void release(RequestId request) = 0;  // whoever keeps it may forget it
  // Stops renewing without a word to whoever keeps it: another may fetch it until its lease ends.
  virtual void unwatch(RequestId request) = 0;
  virtual void room_came() = 0;  // a fetched range was given back

  // Any thread.
  virtual std::vector<KvFetched> take() = 0;
  virtual const KvTrafficCounts& received() const = 0;
};

class DataPlane : public KvFetcher {
 public:
  virtual std::uint16_t port() const = 0;  // where it listens; 0: nowhere
  virtual const KvTrafficCounts& sent() const = 0;
};

}  // namespace quire
