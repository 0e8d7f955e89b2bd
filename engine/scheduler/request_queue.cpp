#include "engine/scheduler/request_queue.h"

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

void RequestQueue::link(Request& request, List& list, Request* next) {
  assert(request.queue.owner == nullptr);
  Request* previous = next == nullptr ? list.tail : next->queue.previous;
  request.queue = {previous, next, this, request.num_tokens()};
  (previous == nullptr ? list.head : previous->queue.next) = &request;
  (next == nullptr ? list.tail : next->queue.previous) = &request;
  ++size_;
  num_tokens_ += request.queue.num_tokens;
}

void RequestQueue::push_back(Request& request) {
  if (policy_ == SchedulingPolicy::fcfs) return link(request, lists_[0], nullptr);
  List& list = lists_[request.priority()];
  Request* next = nullptr;  // nearly always it is the latest
  Request* previous = list.tail;
  while (previous != nullptr && before(request, *previous)) {
    next = previous;
    previous = previous->queue.previous;
  }
  link(request, list, next);
}

void RequestQueue::push_front(Request& request) {
  if (policy_ == SchedulingPolicy::fcfs) {
    List& list = lists_[0];
    return link(request, list, list.head);
  }
  List& list = lists_[request.priority()];
  Request* next = list.head;  // it has been served before, so it is among the oldest
  while (next != nullptr && before(*next, request)) next = next->queue.next;
  link(request, list, next);
}

void RequestQueue::remove(Request& request) {
  assert(holds(request));
  const auto at = lists_.find(policy_ == SchedulingPolicy::fcfs ? 0 : request.priority());
  List& list = at->second;
  const QueueLink link = request.queue;
  (link.previous == nullptr ? list.head : link.previous->queue.next) = link.next;
  (link.next == nullptr ? list.tail : link.next->queue.previous) = link.previous;
  request.queue = {};
  --size_;
  num_tokens_ -= link.num_tokens;
  if (list.head == nullptr) lists_.erase(at);
}

}  // namespace quire
