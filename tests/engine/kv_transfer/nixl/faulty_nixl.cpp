#include "tests/engine/kv_transfer/nixl/faulty_nixl.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <random>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace quire::test {
namespace {

using Handle = NixlLibrary::Handle;
using Clock = std::chrono::steady_clock;
constexpr int kFails = -1;  // NIXL_ERR_INVALID_PARAM and others below 0
constexpr int kRuns = 1;
constexpr int kNumFailures = 5;
constexpr std::chrono::milliseconds kDelay{40};

struct Held {
  Clock::time_point due;
  Handle agent;
  std::string to, notice;
};

// The library's functions know nothing of who calls them.
struct State {
  std::mutex mutex;
  NixlFaultPlan plan;
  int seen = 0;
  bool struck = false;
  std::vector<Held> held;
  std::vector<std::pair<std::byte*, std::size_t>> described;  // of the last transfer's own bytes
  Handle own_list = nullptr;                                  // the first of the two of a transfer
  int num_lists = 0;
  std::unordered_map<Handle, Clock::time_point> slow;
  std::unordered_map<Handle, bool> failing;
  bool drops_done = false;
  const NixlLibrary* real = nullptr;
};
State state;

bool is_one_of(std::initializer_list<NixlFault> faults) {
  for (const NixlFault fault : faults)
    if (state.plan.fault == fault) return true;
  return false;
}

// With the lock: whether this call of those that the plan's fault is of is the one.
bool strikes(std::initializer_list<NixlFault> faults) {
  if (!is_one_of(faults)) return false;
  const int number = state.seen++;
  const bool is_it = number == state.plan.call || (state.plan.always && number > state.plan.call);
  state.struck = state.struck || is_it;
  return is_it;
}

std::string flipped(std::string text) {
  std::mt19937_64 random(state.plan.seed);
  if (text.empty()) return text;
  char& byte = text[random() % text.size()];
  byte = static_cast<char>(byte ^ (1 << random() % 8));
  return text;
}

int send(Handle agent, const std::string& to, const std::string& notice, Handle args) {
  return state.real->gen_notif(agent, to.c_str(), notice.data(), notice.size(), args);
}

int gen_notif(Handle agent, const char* to, const void* data, std::size_t bytes, Handle args) {
  std::string notice(static_cast<const char*>(data), bytes);
  NixlFault fault = NixlFault::none;
  {
    const std::lock_guard lock(state.mutex);
    if (strikes({NixlFault::drop, NixlFault::duplicate, NixlFault::delay, NixlFault::corrupt,
                 NixlFault::fail}))
      fault = state.plan.fault;
    if (fault == NixlFault::corrupt) notice = flipped(std::move(notice));
    if (fault == NixlFault::delay)
      state.held.push_back({Clock::now() + kDelay, agent, to, std::move(notice)});
  }
  if (fault == NixlFault::fail) return kFails;
  if (fault == NixlFault::drop || fault == NixlFault::delay) return 0;
  if (fault == NixlFault::duplicate) send(agent, to, notice, args);
  return send(agent, to, notice, args);
}

// What was held back of that agent's leaves here.
int get_notifs(Handle agent, Handle map, Handle args) {
  std::vector<Held> due;
  {
    const std::lock_guard lock(state.mutex);
    if (state.plan.fault == NixlFault::fail_reading_notices) {
      const int number = state.seen++;
      if (number >= state.plan.call && number < state.plan.call + kNumFailures) {
        state.struck = true;
        return kFails;
      }
    }
    std::erase_if(state.held, [&](Held& one) {
      if (one.agent != agent || one.due > Clock::now()) return false;
      due.push_back(std::move(one));
      return true;
    });
  }
  for (const Held& one : due) send(agent, one.to, one.notice, args);
  return state.real->get_notifs(agent, map, args);
}

int destroy_agent(Handle agent) {
  {
    const std::lock_guard lock(state.mutex);
    std::erase_if(state.held, [&](const Held& one) { return one.agent == agent; });
  }
  return state.real->destroy_agent(agent);
}

int set_notif_msg(Handle args, const void* data, std::size_t bytes) {
  std::string notice(static_cast<const char*>(data), bytes);
  {
    const std::lock_guard lock(state.mutex);
    if (strikes({NixlFault::drop_done})) {
      state.drops_done = true;
      return 0;
    }
    if (strikes({NixlFault::corrupt_done})) notice = flipped(std::move(notice));
  }
  return state.real->opt_args_set_notif_msg(args, notice.data(), notice.size());
}

int set_has_notif(Handle args, bool has) {
  {
    const std::lock_guard lock(state.mutex);
    if (std::exchange(state.drops_done, false)) has = false;
  }
  return state.real->opt_args_set_has_notif(args, has);
}

// Of each transfer two lists are made: of its own bytes first.
int create_xfer_dlist(int memory, Handle* list) {
  const int status = state.real->create_xfer_dlist(memory, list);
  const std::lock_guard lock(state.mutex);
  if (state.num_lists++ % 2 == 0) {
    state.described.clear();
    state.own_list = *list;
  }
  return status;
}

int xfer_dlist_add_desc(Handle list, std::uintptr_t address, std::size_t bytes,
                        std::uint64_t device) {
  {
    const std::lock_guard lock(state.mutex);
    if (list == state.own_list)
      state.described.emplace_back(reinterpret_cast<std::byte*>(address), bytes);
  }
  return state.real->xfer_dlist_add_desc(list, address, bytes, device);
}

int post_xfer_req(Handle agent, Handle request, Handle args) {
  {
    const std::lock_guard lock(state.mutex);
    if (strikes({NixlFault::fail_write})) return kFails;
    if (strikes({NixlFault::fail_after})) state.failing[request] = true;
    if (strikes({NixlFault::slow_write})) state.slow[request] = Clock::now() + kDelay;
    if (strikes({NixlFault::corrupt_written}) && !state.described.empty()) {
      std::mt19937_64 random(state.plan.seed);
      const auto& [data, bytes] = state.described[random() % state.described.size()];
      data[random() % bytes] ^= static_cast<std::byte>(1 << random() % 8);
    }
  }
  const int status = state.real->post_xfer_req(agent, request, args);
  const std::lock_guard lock(state.mutex);
  return state.failing.contains(request) || state.slow.contains(request) ? kRuns : status;
}

int get_xfer_status(Handle agent, Handle request) {
  const int status = state.real->get_xfer_status(agent, request);
  const std::lock_guard lock(state.mutex);
  const auto slow = state.slow.find(request);
  if (slow != state.slow.end() && slow->second > Clock::now()) return kRuns;
  return status == 0 && state.failing.contains(request) ? kFails : status;
}

int release_xfer_req(Handle agent, Handle request) {
  {
    const std::lock_guard lock(state.mutex);
    state.failing.erase(request);
    state.slow.erase(request);
  }
  return state.real->release_xfer_req(agent, request);
}

const NixlLibrary& real_library() {
  static const NixlLibrary library(std::getenv("QUIRE_NIXL_LIBRARY"));
  return library;
}

}  // namespace

NixlFaultPlan any_nixl_fault(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  NixlFaultPlan plan;
  plan.fault = static_cast<NixlFault>(random() % kNumNixlFaults);
  plan.call = random() % 3 == 0 ? 1 : 0;  // few have more than two
  plan.always = random() % 4 == 0;
  plan.seed = random();
  return plan;
}

FaultyNixl::FaultyNixl() : library_(std::getenv("QUIRE_NIXL_LIBRARY")) {
  state.real = &real_library();
  library_.gen_notif = gen_notif;
  library_.get_notifs = get_notifs;
  library_.destroy_agent = destroy_agent;
  library_.opt_args_set_notif_msg = set_notif_msg;
  library_.opt_args_set_has_notif = set_has_notif;
  library_.create_xfer_dlist = create_xfer_dlist;
  library_.xfer_dlist_add_desc = xfer_dlist_add_desc;
  library_.post_xfer_req = post_xfer_req;
  library_.get_xfer_status = get_xfer_status;
  library_.release_xfer_req = release_xfer_req;
}

FaultyNixl::~FaultyNixl() { use({}); }

void FaultyNixl::use(NixlFaultPlan plan) {
  const std::lock_guard lock(state.mutex);
  state.plan = plan;
  state.seen = 0;
  state.struck = state.drops_done = false;
}

bool FaultyNixl::has_struck() const {
  const std::lock_guard lock(state.mutex);
  return state.struck;
}

}  // namespace quire::test
