#include "engine/client/engine_group.h"

#include <algorithm>
#include <atomic>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/experimental/concurrent_channel.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <optional>
#include <utility>

#include "base/log.h"
#include "engine/client/engine_calls.h"
#include "engine/client/engine_choice.h"
#include "engine/client/engine_client.h"
#include "engine/client/generation_buffer.h"
#include "engine/client/group_errors.h"
#include "engine/client/group_observers.h"
#include "engine/client/orphans.h"
#include "engine/client/starting_engines.h"

namespace quire {
namespace {

constexpr std::chrono::milliseconds kGlance{50};

using Signal = asio::experimental::concurrent_channel<void(boost::system::error_code)>;

}  // namespace

class EngineGroup::Impl {
 public:
  Impl(asio::any_io_executor executor, std::vector<std::unique_ptr<ClientEnd>> ends,
       EngineConfig config, EngineGroupOptions options)
      : executor_(executor),
        config_(std::move(config)),
        options_(std::move(options)),
        changed_(executor, 1),
        orphans_(std::make_shared<Orphans>(executor, options_.orphan_patience)) {
    std::uint32_t rank = 0;
    for (auto& end : ends) {
      engines_.push_back(
          std::make_unique<EngineClient>(executor, EngineId{rank++}, std::move(end)));
    }
  }

  // Before the first of them is gone none may call, for what is called looks at all.
  ~Impl() {
    orphans_->close();
    for (auto& engine : engines_) engine->close();
  }

  GroupObservers& seen_by() { return seen_by_; }

  awaitable<std::vector<PrefixCacheReset>> reset_prefix_cache() {
    return resets_.ask([this](std::uint64_t call) { return tell_ready(ResetPrefixCache{call}); });
  }

  awaitable<std::vector<BlockReport>> report_blocks() {
    return reports_.ask([this](std::uint64_t call) { return tell_ready(ReportBlocks{call}); });
  }

  void tell_push(const std::string& name, std::optional<EngineId> wanted) {
    PushNotice notice{name, wanted ? engines_.at(wanted->value)->ready().kv_listen : ""};
    for (const auto& engine : engines_)
      if (engine->state() == EngineState::ready && engine->id() != wanted) engine->tell(notice);
  }

  // Any engine reaches whoever keeps it.
  void refuse_fetch(const std::string& params, const std::string& name) {
    const auto ready = std::ranges::find_if(
        engines_, [](const auto& engine) { return engine->state() == EngineState::ready; });
    if (ready != engines_.end() && (*ready)->tell(FetchRefused{params, name})) return;
    static log::Limit lines(1);
    if (lines.allows())
      log::warn("kv_transfer.not_released", {{"because", "no engine takes it: its lease ends it"}});
  }

  awaitable<Result<void>> start() {
    for (auto& engine : engines_) {
      engine->start(config_,
                    {.on_change = [this] { look_around(); },
                     .on_step = [this](EngineId id, const EngineStats& s) { seen_by_.see(id, s); },
                     .on_decisions = [this](std::span<const Decision> d) { seen_by_.see(d); },
                     .on_reset =
                         [this](const PrefixCacheReset& r) {
                           choice_.forget();
                           resets_.take(r);
                         },
                     .on_blocks = [this](BlockReport&& r) { reports_.take(std::move(r)); },
                     .accept = [this](const Ready& ready) { return take_back(ready); },
                     .retry = retry()});
    }
    std::optional<Clock::time_point> notice = Clock::now() + options_.waiting_notice;
    while (true) {
      if (const auto error = failed_engine(engines_, options_.ready_timeout))
        co_return fail(*error);
      if (all_ready()) break;
      auto patience = silence_left(engines_, options_.ready_timeout);
      if (notice) patience = std::min<std::chrono::nanoseconds>(patience, *notice - Clock::now());
      patience = std::max<std::chrono::nanoseconds>(patience, std::chrono::milliseconds(1));
      co_await with_timeout(patience, changed_.async_receive(asio::use_awaitable));
      if (notice && Clock::now() >= *notice) {
        log_waiting(engines_);
        notice.reset();
      }
    }
    std::vector<Ready> answers;
    for (auto& engine : engines_) answers.push_back(engine->ready());
    for (const Ready& ready : answers) {
      if (auto ok = has_our_model(ready); !ok) co_return fail(ok.error());
    }
    auto merged = merge_ready(std::move(answers));
    if (!merged) co_return fail(merged.error());
    ready_ = std::move(*merged);
    choice_.set_block_size(ready_.engines.front().block_size);
    is_ready_.store(true, std::memory_order_release);
    co_return Result<void>();
  }

  EngineGroupState state() const {
    if (num_alive() == 0) return EngineGroupState::dead;
    if (draining_) return EngineGroupState::draining;
    const bool ready = is_ready_.load(std::memory_order_acquire) && any_ready();
    return ready ? EngineGroupState::ready : EngineGroupState::starting;
  }

  std::string progress() const { return progress_of(engines_); }

  bool has_dead() const { return num_alive() < engines_.size(); }
  bool has_started() const { return is_ready_.load(std::memory_order_acquire); }
  bool is_up(EngineId id) const { return can_take(engines_.at(id.value)); }

  std::string error() const {
    for (const auto& engine : engines_) {
      const EngineStatus status = engine->status();
      if (status.state == EngineState::dead) return status.error;
    }
    return {};
  }

  const ReadyInfo& ready() const { return ready_; }
  int num_engines() const { return static_cast<int>(engines_.size()); }
  EngineStats stats(EngineId id) const {
    const EngineClient& engine = *engines_.at(id.value);
    EngineStats stats = engine.stats();
    stats.num_waiting += orphans_->num_of(engine);
    return stats;
  }

  int num_live() const {
    int sum = static_cast<int>(orphans_->size());
    for (const auto& engine : engines_) sum += engine->num_live();
    return sum;
  }

  bool has_room() const {
    return std::ranges::any_of(engines_, [&](const auto& engine) {
      return engine->state() != EngineState::dead && engine->num_live() < max_live();
    });
  }

  std::int64_t num_free() const {
    return static_cast<std::int64_t>(num_alive()) * max_live() - num_live();
  }

  Result<void> check_room(std::int64_t requests) const {
    const std::int64_t most = static_cast<std::int64_t>(num_alive()) * max_live();
    if (requests > most) return too_many_error(requests, most);
    if (requests > most - num_live()) return overloaded();
    return {};
  }

  Clock::duration silence() const {
    auto longest = Clock::duration::zero();
    for (const auto& engine : engines_) longest = std::max(longest, engine->silence());
    return longest;
  }

  Result<Generation> submit(AddRequest request, std::optional<EngineId> wanted) {
    if (auto ok = accepts(request); !ok) return ok.error();
    request.id = RequestId{++last_id_};
    if (wanted) return submit_to(*engines_.at(wanted->value), std::move(request));
    // One that is lost, or has been asked to end, takes nothing: then the next one is asked.
    Error refusal{ErrorCode::unavailable, "no engine is ready: " + progress(), {}};
    EngineChoice::Tried tried(engines_.size(), false);
    while (EngineClient* const engine = choice_.next(request, tried)) {
      if (engine->num_live() >= max_live()) {
        refusal = overloaded();
        continue;
      }
      choice_.remember(request, *engine);
      auto submitted = engine->submit(std::move(request));
      if (submitted.has_value()) return submitted;
      if (refusal.code != ErrorCode::overloaded) refusal = submitted.error();
    }
    if (refusal.code == ErrorCode::overloaded || !config_.model.path.empty()) return refusal;
    return wait_for_engine(std::move(request));
  }

  awaitable<void> drain(Clock::time_point deadline) {
    draining_ = true;
    look_around();
    while (num_live() > 0 && Clock::now() < deadline) {
      // Nobody says when one that waits for an engine has left or waited long enough.
      const auto most = orphans_->size() > 0 ? kGlance : Clock::duration::max();
      co_await with_timeout(std::min(deadline - Clock::now(), most),
                            changed_.async_receive(asio::use_awaitable));
    }
    is_over_ = true;
    orphans_->fail(draining_error());
    for (auto& engine : engines_) engine->abort_all();
  }

 private:
  // As those of lost engines do: an engine has left just now, or is about to be back.
  Result<Generation> wait_for_engine(AddRequest request) {
    if (std::cmp_greater_equal(orphans_->size(),
                               static_cast<std::int64_t>(num_alive()) * max_live()))
      return overloaded();
    auto buffer = std::make_shared<GenerationBuffer>(executor_, request.id);
    EngineClient& engine = *engines_.front();  // until one has it
    buffer->client = &engine;
    Generation generation(engine, buffer);
    std::string why = progress();
    if (why.empty()) why = "no engine took this request";
    orphans_->add({std::move(request), std::move(buffer), std::move(why)});
    look_around();  // one may have become ready meanwhile
    return generation;
  }

  // Whoever names an engine wants what it has cached: no other one is asked.
  Result<Generation> submit_to(EngineClient& engine, AddRequest request) {
    const EngineStatus status = engine.status();
    if (status.state != EngineState::ready) {
      return Error{
          status.state == EngineState::dead ? ErrorCode::unavailable : ErrorCode::overloaded,
          "engine " + std::to_string(engine.id().value) + " is not ready" +
              (status.error.empty() ? "" : ": " + status.error),
          {}};
    }
    if (engine.num_live() >= max_live()) return overloaded();
    choice_.remember(request, engine);
    return engine.submit(std::move(request), true);
  }

  std::size_t num_alive() const {
    return static_cast<std::size_t>(std::ranges::count_if(
        engines_, [](const auto& engine) { return engine->state() != EngineState::dead; }));
  }

  std::size_t tell_ready(const Command& question) {
    const auto told = std::ranges::count_if(engines_, [&question](const auto& engine) {
      return engine->state() == EngineState::ready && engine->tell(question);
    });
    return static_cast<std::size_t>(told);
  }

  Result<void> accepts(const AddRequest& request) const {
    switch (state()) {
      case EngineGroupState::starting:
        if (has_started() && expected_back(engines_, options_.orphan_patience))
          return check_prompt(request, ready_);  // it waits
        return Error{ErrorCode::overloaded,
                     (has_started() ? "no engine is ready: " : "starting: ") + progress(),
                     {}};
      case EngineGroupState::draining:
        return draining_error();
      case EngineGroupState::dead:
        return Error{ErrorCode::unavailable, error(), {}};
      case EngineGroupState::ready:
        return check_prompt(request, ready_);
    }
    return {};
  }

  Error overloaded() const { return queue_full_error(config_.scheduler.max_num_queued_reqs); }

  int max_live() const {
    return config_.scheduler.max_num_seqs + config_.scheduler.max_num_queued_reqs;
  }

  // An engine that returns must be what the server has said it is.
  Result<void> take_back(const Ready& ready) const {
    if (!is_ready_.load(std::memory_order_acquire)) return {};
    if (auto ok = check_return(ready_, ready); !ok) return ok;
    return has_our_model(ready);
  }

  Result<void> has_our_model(const Ready& ready) const {
    return options_.has_our_model ? options_.has_our_model(ready) : Result<void>();
  }

  // By engines elsewhere, which have no model path of ours: an engine of this process dies with
  // what it has, and the server with it.
  decltype(EngineClient::Callbacks::retry) retry() {
    if (!config_.model.path.empty()) return {};
    return [this](AddRequest& request, const std::shared_ptr<GenerationBuffer>& buffer) {
      if (is_over_ || num_alive() == 0) return false;
      if (buffer->stays && buffer->client.load()->state() == EngineState::dead) return false;
      if (hand_on(request, buffer)) return true;
      orphans_->add({std::move(request), buffer});
      look_around();  // one may have become ready meanwhile
      return true;
    };
  }

  bool hand_on(const AddRequest& request, const std::shared_ptr<GenerationBuffer>& buffer) {
    if (buffer->stays) return buffer->client.load()->resubmit(request, buffer).has_value();
    EngineChoice::Tried tried(engines_.size(), false);
    while (EngineClient* const engine = choice_.next(request, tried)) {
      if (engine->resubmit(request, buffer).has_value()) return true;
    }
    return false;
  }

  void look_around() {
    changed_.try_send(boost::system::error_code());
    if (is_over_) return orphans_->fail(draining_error());
    if (num_alive() == 0) return orphans_->fail({ErrorCode::unavailable, error(), {}});
    if (!any_ready()) return;
    orphans_->place([this](Orphans::One& one) { return hand_on(one.request, one.buffer); });
  }

  static bool can_take(const std::unique_ptr<EngineClient>& engine) {
    return engine->state() == EngineState::ready;
  }
  bool any_ready() const { return std::ranges::any_of(engines_, can_take); }
  bool all_ready() const { return std::ranges::all_of(engines_, can_take); }

  Error fail(Error error) {
    for (auto& engine : engines_) engine->fail(error.detail);
    return error;
  }

  const asio::any_io_executor executor_;
  const EngineConfig config_;
  const EngineGroupOptions options_;
  GroupObservers seen_by_;
  EngineCalls<PrefixCacheReset> resets_;
  EngineCalls<BlockReport> reports_;
  ReadyInfo ready_;  // written before is_ready_
  std::atomic<bool> is_ready_{false};
  std::atomic<bool> draining_{false};
  std::atomic<bool> is_over_{false};  // the drain is, and what is left has been aborted
  std::atomic<std::uint64_t> last_id_{0};
  Signal changed_;
  const std::shared_ptr<Orphans> orphans_;
  EngineChoice choice_{engines_, config_.cache.enable_prefix_caching};
  Engines engines_;  // last: their events use what is above
};

EngineGroup::EngineGroup(asio::any_io_executor executor,
                         std::vector<std::unique_ptr<ClientEnd>> engines, EngineConfig config,
                         EngineGroupOptions options)
    : impl_(std::make_unique<Impl>(std::move(executor), std::move(engines), std::move(config),
                                   std::move(options))) {}

EngineGroup::~EngineGroup() = default;

void EngineGroup::on_step(StepObserver observer) { impl_->seen_by().on_step(std::move(observer)); }
void EngineGroup::on_decisions(DecisionObserver observer) {
  impl_->seen_by().on_decisions(std::move(observer));
}
awaitable<std::vector<PrefixCacheReset>> EngineGroup::reset_prefix_cache() {
  return impl_->reset_prefix_cache();
}
awaitable<std::vector<BlockReport>> EngineGroup::report_blocks() { return impl_->report_blocks(); }
void EngineGroup::tell_push(const std::string& name, std::optional<EngineId> engine) {
  impl_->tell_push(name, engine);
}
void EngineGroup::refuse_fetch(const std::string& params, const std::string& name) {
  impl_->refuse_fetch(params, name);
}
awaitable<Result<void>> EngineGroup::start() { return impl_->start(); }
EngineGroupState EngineGroup::state() const { return impl_->state(); }
bool EngineGroup::has_dead() const { return impl_->has_dead(); }
bool EngineGroup::has_started() const { return impl_->has_started(); }
bool EngineGroup::is_up(EngineId engine) const { return impl_->is_up(engine); }
std::string EngineGroup::progress() const { return impl_->progress(); }
std::string EngineGroup::error() const { return impl_->error(); }
const ReadyInfo& EngineGroup::ready() const { return impl_->ready(); }
int EngineGroup::num_engines() const { return impl_->num_engines(); }
EngineStats EngineGroup::stats(EngineId engine) const { return impl_->stats(engine); }
int EngineGroup::num_live() const { return impl_->num_live(); }
bool EngineGroup::has_room() const { return impl_->has_room(); }
std::int64_t EngineGroup::num_free() const { return impl_->num_free(); }
Result<void> EngineGroup::check_room(std::int64_t requests) const {
  return impl_->check_room(requests);
}
Clock::duration EngineGroup::silence() const { return impl_->silence(); }
Result<Generation> EngineGroup::submit(AddRequest request, std::optional<EngineId> engine) {
  return impl_->submit(std::move(request), engine);
}
awaitable<void> EngineGroup::drain(Clock::time_point deadline) { return impl_->drain(deadline); }

}  // namespace quire
