#include "engine/client/generation_buffer.h"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <utility>

namespace quire {

void GenerationBuffer::deliver(RequestOutput output) {
  bool wake = false;
  {
    const std::lock_guard lock(mutex_);
    if (finished_) return;
    finished_ = output.finish_reason.has_value();
    if (pending_) {
      merge(*pending_, std::move(output));
    } else {
      pending_ = std::move(output);
    }
    wake = std::exchange(reader_waits_, false);
  }
  if (wake) wake_.try_send(boost::system::error_code());
}

void GenerationBuffer::finish(FinishReason reason, std::optional<Error> error) {
  bool wake = false;
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(finished_, true)) return;
    if (!pending_) pending_.emplace().id = id;
    pending_->finish_reason = reason;
    pending_->error = std::move(error);
    wake = std::exchange(reader_waits_, false);
  }
  if (wake) wake_.try_send(boost::system::error_code());
}

void GenerationBuffer::close() {
  bool wake = false;
  {
    const std::lock_guard lock(mutex_);
    finished_ = true;
    pending_.reset();
    wake = std::exchange(reader_waits_, false);
  }
  if (wake) wake_.try_send(boost::system::error_code());
}

std::optional<RequestOutput> GenerationBuffer::take() {
  const std::lock_guard lock(mutex_);
  reader_waits_ = !pending_ && !finished_;
  return std::exchange(pending_, std::nullopt);
}

bool GenerationBuffer::ended() const {
  const std::lock_guard lock(mutex_);
  return finished_ && !pending_;
}

bool GenerationBuffer::finished() const {
  const std::lock_guard lock(mutex_);
  return finished_;
}

awaitable<void> GenerationBuffer::wait() { co_await wake_.async_receive(asio::use_awaitable); }

}  // namespace quire
