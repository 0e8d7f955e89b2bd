#include "engine/kv_transfer/plane/forwarding_plane.h"

#include <utility>

namespace quire {

void ForwardingPlane::watch(RequestId request, KvSource source) {
  post([request, source = std::move(source)](KvFetcher& fetcher) {
    fetcher.watch(request, source);
  });
}
void ForwardingPlane::fetch(KvFetch fetch) {
  post([fetch = std::move(fetch)](KvFetcher& fetcher) { fetcher.fetch(fetch); });
}
void ForwardingPlane::cancel(RequestId request) {
  post([request](KvFetcher& fetcher) { fetcher.cancel(request); });
}
void ForwardingPlane::release(RequestId request) {
  post([request](KvFetcher& fetcher) { fetcher.release(request); });
}
void ForwardingPlane::unwatch(RequestId request) {
  post([request](KvFetcher& fetcher) { fetcher.unwatch(request); });
}
void ForwardingPlane::room_came() {
  post([](KvFetcher& fetcher) { fetcher.room_came(); });
}
std::vector<KvFetched> ForwardingPlane::take() {
  KvFetcher* const own = fetcher();
  return own == nullptr ? std::vector<KvFetched>() : own->take();
}
const KvTrafficCounts& ForwardingPlane::received() const {
  static const KvTrafficCounts kNone;
  const KvFetcher* const own = fetcher();
  return own == nullptr ? kNone : own->received();
}

}  // namespace quire
