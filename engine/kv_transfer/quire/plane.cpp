#include "engine/kv_transfer/quire/plane.h"

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <utility>

#include "engine/kv_transfer/plane/plane_thread.h"

namespace quire {
namespace {

struct QuireEnds final : PlaneThread::Ends {
  std::optional<KvSender> sender;
  std::optional<KvReceiver> receiver;
};

}  // namespace

std::unique_ptr<DataPlane> make_quire_plane(QuirePlaneOptions options, KeptPrefills* kept,
                                            StagingBuffer* arriving, std::function<void()> wake) {
  if (!wake) wake = [] {};  // an engine that is driven by hand
  options.sender.changed = wake;
  return std::make_unique<PlaneThread>(
      [options = std::move(options), kept, arriving, wake = std::move(wake)](
          const asio::any_io_executor& executor, TaskGroup& tasks) {
        auto ends = std::make_unique<QuireEnds>();
        if (arriving != nullptr)
          ends->fetcher = &ends->receiver.emplace(tasks, *arriving, options.receiver, wake);
        if (kept != nullptr) {
          KvSender& sender =
              ends->sender.emplace(executor, options.listen.value(), options.sender, *kept);
          ends->port = sender.port();
          ends->sent = &sender.counts();
          tasks.spawn(sender.accept(tasks));
          tasks.spawn(sender.expire());
        }
        return ends;
      });
}

}  // namespace quire
