#include "engine/kv_transfer/mooncake/plane.h"

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <optional>
#include <utility>

#include "engine/kv_transfer/plane/plane_thread.h"

namespace quire {
namespace {

// Whoever prefills answers questions and writes; whoever decodes has memory that is written to.
class MooncakeEnds final : public PlaneThread::Ends {
 public:
  MooncakeEnds(const MooncakePlaneOptions& options, const asio::any_io_executor& executor,
               TaskGroup& tasks, KeptPrefills* kept, StagingBuffer* arriving,
               const std::function<void()>& wake) {
    SocketAddress listen = options.listen;
    if (kept != nullptr) {
      keeper_.emplace(executor, tasks, listen, options.self, options.peers, options.keeper, *kept);
      listen.port = 0;  // the bootstrap server has it
      port = keeper_->port();
      sent = &keeper_->counts();
    }
    if (arriving != nullptr) {
      inbox_.emplace(executor, listen, options.self, options.inbox);
      MooncakePullerOptions puller = options.puller;
      puller.host = inbox_->host();
      puller_.emplace(executor, tasks, options.self, options.peers, *inbox_, *arriving, puller,
                      wake);
      if (kept == nullptr) port = inbox_->port();
      fetcher = &*puller_;
    }
    begin(tasks);  // nothing that throws comes after it
  }

 private:
  void begin(TaskGroup& tasks) {
    if (keeper_) {
      tasks.spawn(keeper_->accept_queries());
      tasks.spawn(keeper_->accept_asks());
      tasks.spawn(keeper_->expire());
    }
    if (inbox_) {
      tasks.spawn(inbox_->accept_hellos(tasks));
      tasks.spawn(inbox_->accept_writes(tasks));
    }
  }

  std::optional<MooncakeKeeper> keeper_;
  std::optional<MooncakeInbox> inbox_;
  std::optional<MooncakePuller> puller_;
};

}  // namespace

std::unique_ptr<DataPlane> make_mooncake_plane(MooncakePlaneOptions options, KeptPrefills* kept,
                                               StagingBuffer* arriving,
                                               std::function<void()> wake) {
  if (!wake) wake = [] {};  // an engine that is driven by hand
  options.keeper.changed = wake;
  return std::make_unique<PlaneThread>(
      [options = std::move(options), kept, arriving, wake = std::move(wake)](
          const asio::any_io_executor& executor, TaskGroup& tasks) {
        return std::make_unique<MooncakeEnds>(options, executor, tasks, kept, arriving, wake);
      });
}

}  // namespace quire
