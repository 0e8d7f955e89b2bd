#include "engine/client/engine_client.h"

#include <algorithm>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/post.hpp>
#include <mutex>
#include <utility>

#include "base/log.h"
#include "base/strand.h"
#include "engine/client/generation_buffer.h"

namespace quire {

class EngineClient::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(EngineClient& client, asio::any_io_executor executor, EngineId id,
       std::unique_ptr<ClientEnd> end)
      : client_(client),
        id_(id),
        executor_(executor),
        strand_(new_strand(executor)),
        end_(std::move(end)) {}

  void start(EngineConfig config, Callbacks callbacks) {
    config_ = std::move(config);
    callbacks_ = std::move(callbacks);
    status_.last_heard = Clock::now();
    end_->on_events([weak = weak_from_this(), strand = strand_] {
      asio::post(strand, [weak] {
        if (auto self = weak.lock()) self->handle_events();
      });
    });
    asio::post(strand_, [self = shared_from_this()] { self->handle_events(); });
  }

  // Waits for an event that is being handled; callbacks are not called after it.
  void close() {
    end_->close();
    const std::lock_guard lock(handling_);
    closed_ = true;
  }

  // For good: the line is closed.
  void die(std::string error, bool is_news = true) {
    lose(std::move(error), EngineState::dead, is_news);
    end_->close();
  }

  // The request is moved from where it succeeds.
  Result<void> hand_over(AddRequest&& request, const std::shared_ptr<GenerationBuffer>& buffer) {
    const RequestId id = request.id;
    {
      const std::lock_guard lock(mutex_);
      if (status_.state != EngineState::ready)
        return Error{ErrorCode::unavailable,
                     status_.error.empty() ? name() + " is starting" : status_.error,
                     {}};
      if (live_.empty()) last_step_ = Clock::now();  // it had nothing to say before
      // Before anybody else can know of it: who loses the engine next gives it another one.
      buffer->client = &client_;
      LiveRequest& live = live_[id];
      live.buffer = buffer;
      if (callbacks_.retry) live.request = request;
    }
    Command command = std::move(request);
    if (!end_->send(command)) {
      const std::lock_guard lock(mutex_);
      // Lost with the engine a moment ago: then it has ended, or another engine has it already.
      if (live_.erase(id) == 0) return {};
      request = std::move(std::get<AddRequest>(command));
      // An engine elsewhere has left just now, and the event that says so is on its way.
      if (callbacks_.retry) return Error{ErrorCode::unavailable, name() + " takes nothing new", {}};
      return Error{ErrorCode::overloaded, "too many requests wait for the engine", {}};
    }
    // Who cancelled meanwhile may have told the engine before.
    if (buffer->finished()) abort(id);
    if (!is_live(id)) {
      // Ended already, or lost with a former life of the engine: then it must not run in this one.
      Command stop = AbortRequest{id};
      end_->send(stop);
    }
    return {};
  }

  Result<std::shared_ptr<GenerationBuffer>> submit(AddRequest&& request, bool stays) {
    auto buffer = std::make_shared<GenerationBuffer>(executor_, request.id);
    buffer->stays = stays;
    if (auto ok = hand_over(std::move(request), buffer); !ok) return ok.error();
    return buffer;
  }

  void abort(RequestId id) {
    {
      const std::lock_guard lock(mutex_);
      if (live_.erase(id) == 0) return;
    }
    Command command = AbortRequest{id};
    end_->send(command);
    if (num_live() == 0) changed();
  }

  void abort_all() {
    LiveRequests live;
    {
      const std::lock_guard lock(mutex_);
      live.swap(live_);
    }
    for (auto& [id, one] : live) {
      Command command = AbortRequest{id};
      end_->send(command);
      one.buffer->finish(FinishReason::abort, std::nullopt);
    }
    changed();
  }

  bool tell(Command command) { return end_->send(command); }

  EngineId id() const { return id_; }
  EngineStatus status() const {
    const std::lock_guard lock(mutex_);
    return status_;
  }
  EngineState state() const {
    const std::lock_guard lock(mutex_);
    return status_.state;
  }
  EngineLoad load() const {
    const std::lock_guard lock(mutex_);
    const int requests =
        std::max(static_cast<int>(live_.size()), stats_.num_running + stats_.num_waiting);
    return {requests, static_cast<int>(stats_.kv_cache_usage * 1000)};
  }
  std::uint32_t life() const {
    const std::lock_guard lock(mutex_);
    return life_;
  }
  Ready ready() const {
    const std::lock_guard lock(mutex_);
    return ready_;
  }
  EngineStats stats() const {
    const std::lock_guard lock(mutex_);
    return stats_;
  }
  int num_live() const {
    const std::lock_guard lock(mutex_);
    return static_cast<int>(live_.size() + num_handed_on_);
  }
  Clock::duration silence() const {
    const std::lock_guard lock(mutex_);
    return live_.empty() ? Clock::duration::zero() : Clock::now() - last_step_;
  }

 private:
  std::string name() const { return "engine " + std::to_string(id_.value); }

  bool is_live(RequestId id) const {
    const std::lock_guard lock(mutex_);
    return live_.contains(id);
  }

  // Its requests end, or go to another engine; gauges say that it runs none. The first error stays.
  void lose(std::string error, EngineState state, bool is_news = true) {
    LiveRequests orphans;
    EngineStats idle;
    bool was_ready = false;
    {
      const std::lock_guard lock(mutex_);
      if (status_.state == EngineState::dead) return;
      was_ready = status_.state == EngineState::ready || status_.state == EngineState::leaving;
      if (status_.state == EngineState::leaving && state == EngineState::lost) {
        status_.error = name() + " was asked to end, and has ended";
        status_.expected_since = Clock::now();
      } else if (status_.state != EngineState::lost) {
        status_.error = std::move(error);
      }
      status_.state = state;
      orphans.swap(live_);
      num_handed_on_ = orphans.size();  // nobody's, until another engine or the wait for one has them
      stats_.num_running = stats_.num_waiting = stats_.num_waiting_deferred = 0;
      stats_.num_free_blocks = stats_.num_blocks;
      stats_.kv_cache_usage = 0;
      idle = stats_;
      error = status_.error;
    }
    if (was_ready && is_news)
      log::warn("engine.lost",
                {{"engine", id_.value}, {"error", error}, {"requests", orphans.size()}});
    if (callbacks_.on_step) callbacks_.on_step(id_, idle);
    retry_or_end(std::move(orphans), callbacks_.retry, error);
    {
      const std::lock_guard lock(mutex_);
      num_handed_on_ = 0;
    }
    changed();
  }

  bool leave(const std::string& why) {
    {
      const std::lock_guard lock(mutex_);
      if (status_.state != EngineState::ready) return false;
      status_.state = EngineState::leaving;
      status_.error = name() + " " + why;
      status_.expected_since = Clock::now();
    }
    log::info("engine.leaving", {{"engine", id_.value}, {"requests", num_live()}});
    changed();
    return true;
  }

  void handle_events() {
    const std::lock_guard lock(handling_);
    if (closed_) return;
    events_.clear();
    const bool open = end_->take(events_);
    for (EngineEvent& event : events_) {
      std::visit([this](auto& e) { handle(e); }, event);
    }
    if (!open) die(name() + " has left without saying why");
  }

  // The first one, or that of an engine which begins again.
  void handle(Hello&) {
    if (const auto now = state(); now == EngineState::ready || now == EngineState::leaving)
      lose(name() + " has begun again", EngineState::lost);
    {
      const std::lock_guard lock(mutex_);
      if (status_.state == EngineState::dead) return;
      status_ = {EngineState::starting, {}, {}, Clock::now(), status_.expected_since};
    }
    heard("configuring");
    Command command = Configure{std::string(quire_version()), config_};
    end_->send(command);
  }

  // Of one that is ready: on its way out.
  void handle(StartupProgress& progress) {
    if (leave(progress.stage)) return;
    heard(progress.stage + " (" + std::to_string(static_cast<int>(progress.fraction * 100)) +
          " %)");
  }

  void handle(Ready& ready) {
    {
      const std::lock_guard lock(mutex_);
      if (status_.state != EngineState::starting) return;
      ready.engine = id_;  // it may be another front end's engine too, under another rank
      const auto accepted = callbacks_.accept ? callbacks_.accept(ready) : Result<void>();
      if (!accepted) {
        status_.state = EngineState::lost;
        status_.error = accepted.error().detail;
        status_.expected_since.reset();
        log::error("engine.refused", {{"engine", id_.value}, {"error", status_.error}});
        return;
      }
      ready_ = std::move(ready);
      status_ = {EngineState::ready, "ready", {}, Clock::now()};
      if (++life_ > 1) log::info("engine.back", {{"engine", id_.value}});
      stats_ = {};  // of a former life
      stats_.num_blocks = stats_.num_free_blocks = ready_.num_gpu_blocks - 1;
    }
    changed();
  }

  // Decisions come first: who has its answer may ask how it came about.
  void handle(StepOutput& step) {
    bool last = false;
    if (callbacks_.on_decisions && !step.decisions.empty()) callbacks_.on_decisions(step.decisions);
    {
      const std::lock_guard lock(mutex_);
      stats_ = step.stats;
      last_step_ = Clock::now();
      readers_.clear();
      for (const TokenOutput& output : step.tokens) readers_.push_back(reader_of(output.id, false));
      for (const RequestOutput& output : step.requests) {
        readers_.push_back(reader_of(output.id, output.finish_reason.has_value()));
      }
      last = live_.empty();
    }
    auto reader = readers_.begin();
    for (const TokenOutput& output : step.tokens) {
      if (const auto& buffer = *reader++) buffer->deliver(output.token, step.time);
    }
    for (RequestOutput& output : step.requests) {
      if (const auto& buffer = *reader++) buffer->deliver(std::move(output));
    }
    if (callbacks_.on_step) callbacks_.on_step(id_, step.stats);
    if (last) changed();
  }

  // An engine of this process does not come back; one elsewhere, which has no model path of ours,
  // may.
  void handle(EngineDead& dead) {
    const bool begins = state() == EngineState::starting;
    lose(name() + (begins ? " could not start: " : " has died: ") + dead.error,
         config_.model.path.empty() ? EngineState::lost : EngineState::dead);
  }

  void handle(PrefixCacheReset& reset) {
    if (callbacks_.on_reset) callbacks_.on_reset(reset);
  }

  void handle(BlockReport& report) {
    report.engine = id_;  // as this front end counts them
    if (callbacks_.on_blocks) callbacks_.on_blocks(std::move(report));
  }

  // Null when it was aborted in the meantime.
  std::shared_ptr<GenerationBuffer> reader_of(RequestId id, bool ends) {
    const auto found = live_.find(id);
    if (found == live_.end()) return nullptr;
    if (!ends) return found->second.buffer;
    auto reader = std::move(found->second.buffer);
    live_.erase(found);
    return reader;
  }

  void heard(std::string progress) {
    {
      const std::lock_guard lock(mutex_);
      status_.last_heard = Clock::now();
      status_.progress = std::move(progress);
    }
    changed();
  }

  void changed() {
    if (callbacks_.on_change) callbacks_.on_change();
  }

  EngineClient& client_;
  const EngineId id_;
  asio::any_io_executor executor_;
  asio::any_io_executor strand_;
  std::unique_ptr<ClientEnd> end_;
  EngineConfig config_;  // const after start(), as the callbacks
  Callbacks callbacks_;

  std::mutex handling_;  // held by the strand while it handles events
  bool closed_ = false;
  std::vector<EngineEvent> events_;
  std::vector<std::shared_ptr<GenerationBuffer>> readers_;

  mutable std::mutex mutex_;  // what follows
  EngineStatus status_;
  Ready ready_;
  std::uint32_t life_ = 0;
  Clock::time_point last_step_;  // or when it got work
  EngineStats stats_;
  LiveRequests live_;
  std::size_t num_handed_on_ = 0;  // of an engine that is being lost
};

EngineClient::EngineClient(asio::any_io_executor executor, EngineId id,
                           std::unique_ptr<ClientEnd> end)
    : impl_(std::make_shared<Impl>(*this, std::move(executor), id, std::move(end))) {}

EngineClient::~EngineClient() { close(); }
void EngineClient::close() { impl_->close(); }

void EngineClient::start(EngineConfig config, Callbacks callbacks) {
  impl_->start(std::move(config), std::move(callbacks));
}
void EngineClient::fail(std::string error) { impl_->die(std::move(error), false); }

EngineId EngineClient::id() const { return impl_->id(); }
EngineStatus EngineClient::status() const { return impl_->status(); }
EngineState EngineClient::state() const { return impl_->state(); }
std::uint32_t EngineClient::life() const { return impl_->life(); }
EngineLoad EngineClient::load() const { return impl_->load(); }
Ready EngineClient::ready() const { return impl_->ready(); }
EngineStats EngineClient::stats() const { return impl_->stats(); }
int EngineClient::num_live() const { return impl_->num_live(); }
Clock::duration EngineClient::silence() const { return impl_->silence(); }

Result<Generation> EngineClient::submit(AddRequest&& request, bool stays) {
  auto buffer = impl_->submit(std::move(request), stays);
  if (!buffer) return buffer.error();
  return Generation(*this, std::move(*buffer));
}
Result<void> EngineClient::resubmit(AddRequest request,
                                    const std::shared_ptr<GenerationBuffer>& buffer) {
  return impl_->hand_over(std::move(request), buffer);
}
void EngineClient::abort(RequestId id) { impl_->abort(id); }
bool EngineClient::tell(Command command) { return impl_->tell(std::move(command)); }
void EngineClient::abort_all() { impl_->abort_all(); }

}  // namespace quire
