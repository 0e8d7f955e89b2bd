#include "base/host_names.h"

#include <netdb.h>

#include <condition_variable>
#include <cstring>
#include <exception>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

namespace quire {
namespace {

constexpr std::size_t kMostNames = 256;
constexpr std::chrono::seconds kFresh{60};  // an answer that nobody has used for longer is dropped

Error unavailable(const std::string& host, const std::string& why) {
  return {ErrorCode::unavailable, host + ": " + why, {}};
}

}  // namespace

HostAddresses look_up_now(const std::string& host, const std::string& port, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* first = nullptr;
  if (const int failed = ::getaddrinfo(host.c_str(), port.c_str(), &hints, &first); failed != 0)
    return unavailable(host, ::gai_strerror(failed));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> list(first, ::freeaddrinfo);
  std::vector<HostAddress> found;
  for (const addrinfo* one = first; one != nullptr; one = one->ai_next) {
    HostAddress& address = found.emplace_back();
    address.size = one->ai_addrlen;
    std::memcpy(&address.name, one->ai_addr, one->ai_addrlen);
  }
  if (found.empty()) return unavailable(host, "it has no address");
  return found;
}

struct HostLookup::State {
  std::mutex mutex;
  std::condition_variable arrived;
  std::optional<HostAddresses> answer;
};

HostLookup::HostLookup(const std::string& host, const std::string& port, int flags)
    : HostLookup([host, port, flags] { return look_up_now(host, port, flags); }) {}

HostLookup::HostLookup(Function look_up) : state_(std::make_shared<State>()) {
  const auto run = [state = state_, look_up = std::move(look_up)] {
    HostAddresses answer = Error{};
    try {
      answer = look_up();
    } catch (const std::exception& error) {  // no memory
      answer = Error{ErrorCode::unavailable, error.what(), {}};
    }
    const std::lock_guard lock(state->mutex);
    state->answer = std::move(answer);
    state->arrived.notify_all();
  };
  try {
    std::thread(run).detach();
  } catch (const std::system_error& error) {
    state_->answer = Error{ErrorCode::unavailable,
                           std::string("no thread to look a name up: ") + error.what(), {}};
  }
}

bool HostLookup::wait_for(std::chrono::milliseconds time) const {
  std::unique_lock lock(state_->mutex);
  return state_->arrived.wait_for(lock, time, [this] { return state_->answer.has_value(); });
}

const HostAddresses& HostLookup::answer() const { return *state_->answer; }

HostNames::HostNames(Function look_up) : look_up_(std::move(look_up)) {}

Result<HostNames::Next> HostNames::next(const std::string& host, const std::string& port,
                                        std::chrono::milliseconds patience) {
  if (auto number = look_up_now(host, port, AI_NUMERICHOST | AI_NUMERICSERV))
    return Next{number->front()};
  const std::string key = host + ' ' + port;
  std::unique_lock lock(mutex_);
  const std::shared_ptr<Name> name = find(key, host, port);
  if (name == nullptr)
    return Error{ErrorCode::overloaded, host + ": too many names are being looked up", {}};
  lock.unlock();
  if (!name->lookup.wait_for(patience))
    return Error{ErrorCode::overloaded, host + ": its name is being looked up", {}};
  const HostAddresses& answer = name->lookup.answer();
  lock.lock();
  name->used = Clock::now();
  const std::size_t index = name->num_taken++;
  const bool is_last = !answer || index + 1 >= answer->size();
  const auto kept = names_.find(key);
  if (is_last && kept != names_.end() && kept->second == name) names_.erase(kept);
  if (!answer) return answer.error();
  // Of those who waited for the same answer each has one, even where there are fewer.
  return Next{(*answer)[index % answer->size()], is_last};
}

std::shared_ptr<HostNames::Name> HostNames::find(const std::string& key, const std::string& host,
                                                 const std::string& port) {
  forget_old();
  if (const auto known = names_.find(key); known != names_.end()) return known->second;
  if (names_.size() >= kMostNames) return nullptr;
  const auto name = std::make_shared<Name>(
      HostLookup([look_up = look_up_, host, port] { return look_up(host, port); }));
  names_.emplace(key, name);
  return name;
}

// An answer of long ago may not hold any more. What is still looked up is asked for once only.
void HostNames::forget_old() {
  const auto now = Clock::now();
  std::erase_if(names_, [now](const auto& one) {
    return now - one.second->used > kFresh && one.second->lookup.wait_for({});
  });
}

}  // namespace quire
