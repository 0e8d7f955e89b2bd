#pragma once
// The thread of a plane that is made of coroutines: whoever asks this engine, and those that it
// asks. Asleep while nothing travels.

#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "base/async.h"
#include "base/task_group.h"
#include "engine/kv_transfer/plane/forwarding_plane.h"

namespace quire {

class PlaneThread final : public ForwardingPlane {
 public:
  // What works there: made, called and ended on the thread.
  struct Ends {
    virtual ~Ends() = default;
    KvFetcher* fetcher = nullptr;           // null: it fetches nothing
    const KvTrafficCounts* sent = nullptr;  // null: it keeps nothing
    std::uint16_t port = 0;
  };
  using Make = std::function<std::unique_ptr<Ends>(const asio::any_io_executor&, TaskGroup& tasks)>;

  // Throws what `make` throws.
  explicit PlaneThread(Make make);
  ~PlaneThread() override;
  PlaneThread(const PlaneThread&) = delete;
  PlaneThread& operator=(const PlaneThread&) = delete;

  std::uint16_t port() const override;
  const KvTrafficCounts& sent() const override;

 private:
  struct State;
  void post(std::function<void(KvFetcher&)> call) override;
  KvFetcher* fetcher() const override;

  const std::shared_ptr<State> state_;
  std::thread thread_;  // last: it uses what is above
};

}  // namespace quire
