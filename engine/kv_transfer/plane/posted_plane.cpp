#include "engine/kv_transfer/plane/posted_plane.h"

#include <utility>

namespace quire {

void PostedPlane::watch(RequestId request, KvSource source) {
  post([request, source = std::move(source)](KvFetcher& fetcher) {
    fetcher.watch(request, source);
  });
}
void PostedPlane::fetch(KvFetch fetch) {
  post([fetch = std::move(fetch)](KvFetcher& fetcher) { fetcher.fetch(fetch); });
}
void PostedPlane::cancel(RequestId request) {
  post([request](KvFetcher& fetcher) { fetcher.cancel(request); });
}
void PostedPlane::release(RequestId request) {
  post([request](KvFetcher& fetcher) { fetcher.release(request); });
}
void PostedPlane::unwatch(RequestId request) {
  post([request](KvFetcher& fetcher) { fetcher.unwatch(request); });
}
void PostedPlane::room_came() {
  post([](KvFetcher& fetcher) { fetcher.room_came(); });
}
std::vector<KvFetched> PostedPlane::take() {
  KvFetcher* const own = fetcher();
  return own == nullptr ? std::vector<KvFetched>() : own->take();
}
const KvTrafficCounts& PostedPlane::received() const {
  static const KvTrafficCounts kNone;
  const KvFetcher* const own = fetcher();
  return own == nullptr ? kNone : own->received();
}

}  // namespace quire
