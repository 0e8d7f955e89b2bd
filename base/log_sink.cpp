#include "base/log_sink.h"

#include <pthread.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <mutex>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

namespace quire::log {

struct Sink::State {
  State(int fd, std::function<std::string(std::uint64_t)> make_missing)
      : descriptor(fd), missing(std::move(make_missing)) {}

  const int descriptor;
  const std::function<std::string(std::uint64_t)> missing;

  std::mutex mutex;  // what follows
  std::condition_variable changed;
  std::string waiting;  // whole lines
  std::uint64_t num_dropped = 0;
  bool writing = false, closed = false;
  bool has_thread = true;  // without one, who logs writes

  // Waits for lines; empty: closed.
  std::string take() {
    std::unique_lock lock(mutex);
    writing = false;
    changed.notify_all();
    changed.wait(lock, [this] { return closed || !waiting.empty() || num_dropped > 0; });
    if (closed) return {};
    writing = true;
    std::string lines = std::exchange(waiting, {});
    if (const auto dropped = std::exchange(num_dropped, 0)) lines += missing(dropped);
    return lines;
  }

  // A descriptor that takes nothing any more (a closed pipe, a full disk) loses the lines.
  void write_all(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
      if (written > 0) {
        bytes.remove_prefix(static_cast<std::size_t>(written));
      } else if (errno == EAGAIN) {
        pollfd writable{descriptor, POLLOUT, 0};
        ::poll(&writable, 1, -1);
      } else if (errno != EINTR) {
        return;
      }
    }
  }

  void run() {
    for (std::string lines = take(); !lines.empty(); lines = take()) write_all(lines);
  }
};

Sink::Sink(int descriptor, std::function<std::string(std::uint64_t lines)> missing)
    : state_(std::make_shared<State>(descriptor, std::move(missing))) {
  // Signals are for the threads that wait for them, SIGPIPE is for none.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread([state = state_] { state->run(); }).detach();
  } catch (const std::system_error&) {
    state_->has_thread = false;  // the program will hardly start, and shall be able to say so
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Sink::~Sink() {
  const std::lock_guard lock(state_->mutex);
  state_->closed = true;
  state_->changed.notify_all();
}

void Sink::push(std::string line) {
  const std::lock_guard lock(state_->mutex);
  if (!state_->has_thread) return state_->write_all(line);
  // Once lines are missing, none may come before the line that says so.
  if (state_->num_dropped > 0 || state_->waiting.size() + line.size() > kMaxBytes) {
    ++state_->num_dropped;
    return;
  }
  state_->waiting += line;
  state_->changed.notify_all();
}

void Sink::flush(std::chrono::milliseconds limit) {
  std::unique_lock lock(state_->mutex);
  state_->changed.wait_for(lock, limit, [this] {
    return !state_->writing && state_->waiting.empty() && state_->num_dropped == 0;
  });
}

}  // namespace quire::log
