#include "engine/scheduler/request_queue.h"

#include <algorithm>
#include <cassert>
#include <tuple>

namespace quire {

bool RequestQueue::before(const Request& a, const Request& b) {
  return std::tuple(a.priority(), a.arrival(), a.id()) <
         std::tuple(b.priority(), b.arrival(), b.id());
}

Request* RequestQueue::front() const {
  return lists_.empty() ? nullptr : lists_.begin()->second.head;
}

// A client's requests go into successive rounds, from the one that is being served on.
std::int64_t RequestQueue::next_round(std::uint64_t client) {
  const std::int64_t now = lists_.empty() ? 0 : lists_.begin()->first;
  const auto found = turns_.find(client);
  return found == turns_.end() ? now : std::max(now, found->second.last + 1);
}

void RequestQueue::link(Request& request, std::int64_t place, Request* next) {
  assert(request.queue.owner == nullptr);
  List& list = lists_[place];
  Request* previous = next == nullptr ? list.tail : next->queue.previous;
  request.queue = {previous, next, this, request.num_tokens(), place};
  (previous == nullptr ? list.head : previous->queue.next) = &request;
  (next == nullptr ? list.tail : next->queue.previous) = &request;
  ++size_;
  num_tokens_ += request.queue.num_tokens;
  if (policy_ != SchedulingPolicy::fcfs) return;
  Turns& turns = turns_[request.client()];
  turns.last = std::max(turns.last, place);
  ++turns.waiting;
}

void RequestQueue::push_back(Request& request) {
  if (policy_ == SchedulingPolicy::fcfs) return link(request, next_round(request.client()), nullptr);
  List& list = lists_[request.priority()];
  Request* next = nullptr;  // nearly always it is the latest
  Request* previous = list.tail;
  while (previous != nullptr && before(request, *previous)) {
    next = previous;
    previous = previous->queue.previous;
  }
  link(request, request.priority(), next);
}

void RequestQueue::push_front(Request& request) {
  if (policy_ == SchedulingPolicy::fcfs) {
    return lists_.empty() ? link(request, 0, nullptr)
                          : link(request, lists_.begin()->first, lists_.begin()->second.head);
  }
  List& list = lists_[request.priority()];
  Request* next = list.head;  // it has been served before, so it is among the oldest
  while (next != nullptr && before(*next, request)) next = next->queue.next;
  link(request, request.priority(), next);
}

void RequestQueue::remove(Request& request) {
  assert(holds(request));
  const auto at = lists_.find(request.queue.place);
  List& list = at->second;
  const QueueLink link = request.queue;
  (link.previous == nullptr ? list.head : link.previous->queue.next) = link.next;
  (link.next == nullptr ? list.tail : link.next->queue.previous) = link.previous;
  request.queue = {};
  --size_;
  num_tokens_ -= link.num_tokens;
  if (list.head == nullptr) lists_.erase(at);
  if (policy_ != SchedulingPolicy::fcfs) return;
  const auto turns = turns_.find(request.client());
  if (--turns->second.waiting == 0) turns_.erase(turns);
}

}  // namespace quire
