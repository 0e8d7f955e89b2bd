#include "engine/client/generation.h"

#include <boost/asio/awaitable.hpp>
#include <utility>

#include "engine/client/engine_client.h"
#include "engine/client/generation_buffer.h"

namespace quire {

Generation::Generation(EngineClient& client, std::shared_ptr<GenerationBuffer> buffer)
    : client_(&client), buffer_(std::move(buffer)) {}

Generation::Generation(Generation&&) noexcept = default;

Generation& Generation::operator=(Generation&& other) noexcept {
  if (this != &other) {
    cancel();
    client_ = other.client_;
    buffer_ = std::move(other.buffer_);
  }
  return *this;
}

Generation::~Generation() { cancel(); }

RequestId Generation::id() const { return buffer_->id; }
EngineId Generation::engine() const { return buffer_->client.load()->id(); }

const std::vector<Clock::time_point>& Generation::token_times() const {
  return buffer_->taken_times();
}

awaitable<std::optional<RequestOutput>> Generation::next() {
  while (true) {
    if (auto output = buffer_->take()) co_return output;
    if (buffer_->ended()) co_return std::nullopt;
    co_await buffer_->wait();
  }
}

void Generation::reuse(RequestOutput output) { buffer_->reuse(std::move(output.token_ids)); }

void Generation::let_start_over() { buffer_->let_start_over(); }
bool Generation::starts_over() const { return buffer_->taken_starts_over(); }

void Generation::cancel() {
  if (!buffer_) return;
  // Closed before the engine is told: who hands it to another engine looks in the other order.
  const bool runs = !buffer_->finished();
  buffer_->close();
  if (runs) buffer_->client.load()->abort(buffer_->id);
}

}  // namespace quire
