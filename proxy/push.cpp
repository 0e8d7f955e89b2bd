#include "proxy/push.h"

#include <fmt/format.h>

#include <random>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "proxy/watch.h"

namespace quire::proxy {

std::optional<KvPlace> KvPlaces::find(const net::Url& server) const {
  const std::lock_guard lock(mutex_);
  const auto found = places_.find(server.text());
  if (found == places_.end()) return std::nullopt;
  return found->second;
}

void KvPlaces::learn(const net::Url& server, const net::Response& answer) {
  auto place = kept_place(answer.body);
  if (!place) return;
  const std::lock_guard lock(mutex_);
  places_.insert_or_assign(server.text(), std::move(*place));
}

std::string new_push_name() {
  constexpr int kWords = 4;
  std::random_device random;
  std::string name(kPushName);
  for (int i = 0; i < kWords; ++i) name += fmt::format("{:08x}", random());
  return name;
}

PushedPrefill::PushedPrefill(const Connection& client, const net::Url& server, net::Request request,
                             KvPlaces& places)
    : client_(client), server_(server), request_(std::move(request)), places_(places) {
  thread_ = std::thread([this] { run(); });
}

PushedPrefill::~PushedPrefill() { end(); }

PushedPrefill::State PushedPrefill::end() {
  stopped_ = true;
  if (thread_.joinable()) thread_.join();
  return state_;
}

void PushedPrefill::run() {
  Watch watch(client_, server_);
  net::Patience patience = watch.patience();
  patience.stopped = [this, ends = std::move(patience.stopped)] { return stopped_ || ends(); };
  try {
    answer_ = net::Client(patience).send(request_);
    places_.learn(server_, answer_);
    const bool is_lost = answer_.status == 502 || answer_.status == 504;
    const bool is_nonsense = answer_.status == 200 && !is_answer(answer_.body);
    if (is_nonsense)
      log::warn("proxy.no_prefill",
                {{"server", server_.text()}, {"error", "its answer is no JSON object"}});
    state_ = is_lost || is_nonsense  ? State::unreachable
             : answer_.status == 200 ? State::ended
             : answer_.status == 503 ? State::busy
                                     : State::refused;
  } catch (const Failure& failure) {
    const bool is_broken_off =
        failure.error().code == ErrorCode::cancelled && !watch.is_server_dead();
    if (!is_broken_off)
      log::warn("proxy.no_prefill", {{"server", server_.text()}, {"error", failure.what()}});
    state_ = is_broken_off ? State::ended : State::unreachable;
  } catch (const std::exception& e) {
    log::error("proxy.failed", {{"error", e.what()}});
    state_ = State::unreachable;
  }
}

}  // namespace quire::proxy
