#include "engine/client/generation_buffer.h"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <utility>

namespace quire {

void GenerationBuffer::deliver(RequestOutput output) {
  {
    const std::lock_guard lock(mutex_);
    if (finished_) return;
    finished_ = output.finish_reason.has_value();
    note_times(output.token_ids.size(), output.times.last_token);
    merge(pending(), std::move(output));
    header_.times = pending_->times;
    header_.num_cached_tokens = pending_->num_cached_tokens;
    header_.num_external_tokens = pending_->num_external_tokens;
    header_.num_preemptions = pending_->num_preemptions;
    if (!reader_to_wake()) return;
  }
  wake_.try_send(boost::system::error_code());
}

void GenerationBuffer::deliver(TokenId token, Clock::time_point time) {
  {
    const std::lock_guard lock(mutex_);
    if (finished_) return;
    pending().token_ids.push_back(token);
    note_times(1, time);
    pending_->times.last_token = header_.times.last_token = time;
    if (!reader_to_wake()) return;
  }
  wake_.try_send(boost::system::error_code());
}

void GenerationBuffer::finish(FinishReason reason, std::optional<Error> error) {
  RequestOutput end;
  end.id = id;
  end.finish_reason = reason;
  end.error = std::move(error);
  deliver(std::move(end));
}

RequestOutput& GenerationBuffer::pending() {
  if (!pending_) {
    pending_ = header_;
    pending_->token_ids = std::move(spare_);
    pending_->token_ids.clear();
  }
  return *pending_;
}

void GenerationBuffer::reuse(std::vector<TokenId> ids) {
  const std::lock_guard lock(mutex_);
  spare_ = std::move(ids);
}

// Tokens of one step share the time since the step before.
void GenerationBuffer::note_times(std::size_t tokens, Clock::time_point last) {
  const Clock::time_point from = latest_token_.value_or(last);
  const auto steps = static_cast<Clock::rep>(tokens);
  for (Clock::rep i = 1; i <= steps; ++i) times_.push_back(from + (last - from) * i / steps);
  if (tokens > 0) latest_token_ = last;
}

bool GenerationBuffer::reader_to_wake() { return std::exchange(reader_waits_, false); }

void GenerationBuffer::let_start_over() {
  const std::lock_guard lock(mutex_);
  may_start_over_ = true;
}

bool GenerationBuffer::restart() {
  const std::lock_guard lock(mutex_);
  if (finished_ || (begun_ && !may_start_over_) || std::exchange(restarted_, true)) return false;
  starts_over_ = begun_;
  pending_.reset();
  times_.clear();
  latest_token_.reset();
  header_ = {};
  header_.id = id;
  return true;
}

void GenerationBuffer::close() {
  {
    const std::lock_guard lock(mutex_);
    finished_ = true;
    pending_.reset();
    if (!reader_to_wake()) return;
  }
  wake_.try_send(boost::system::error_code());
}

std::optional<RequestOutput> GenerationBuffer::take() {
  const std::lock_guard lock(mutex_);
  reader_waits_ = !pending_ && !finished_;
  begun_ = begun_ || pending_;
  taken_starts_over_ = pending_ && std::exchange(starts_over_, false);
  taken_times_.clear();
  std::swap(times_, taken_times_);
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

awaitable<void> GenerationBuffer::wait() { return wake_.async_receive(asio::use_awaitable); }

}  // namespace quire
