#pragma once
// A plane that hands the calls of the engine's thread on to the thread on which its fetcher works.

#include <functional>
#include <vector>

#include "engine/kv_transfer/plane/data_plane.h"

namespace quire {

class ForwardingPlane : public DataPlane {
 public:
  void watch(RequestId request, KvSource source) final;
  void fetch(KvFetch fetch) final;
  void cancel(RequestId request) final;
  void release(RequestId request) final;
  void unwatch(RequestId request) final;
  void room_came() final;
  std::vector<KvFetched> take() final;
  const KvTrafficCounts& received() const final;

 private:
  // On the plane's thread, if it has a fetcher. What it throws is told, and ends nobody else's.
  virtual void post(std::function<void(KvFetcher&)> call) = 0;
  virtual KvFetcher* fetcher() const = 0;  // null: it fetches nothing
};

}  // namespace quire
