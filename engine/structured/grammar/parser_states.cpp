#include "engine/structured/grammar/parser_states.h"

#include <algorithm>
#include <map>

namespace quire::structured {
namespace {

constexpr StackId kBottom = 0;

template <class T>
std::uint64_t hash_of(const T* items, std::size_t count, std::uint64_t seed) {
  std::uint64_t hash = seed + count;
  for (std::size_t i = 0; i < count; ++i) {
    const auto [a, b] = items[i];
    hash ^= std::uint64_t{a} << 32 | b;
    hash *= 0x9e3779b97f4a7c15u;
    hash ^= hash >> 29;
  }
  return hash;
}

}  // namespace

struct ParserStates::Growing {
  std::vector<Thread> threads;
  std::vector<Frame> places;                                  // ends of rules that were reached
  std::map<std::uint32_t, std::pair<RuleId, StackId>> calls;  // by rank: callers first
  bool accepting = false;
};

ParserStates::ParserStates(Network& network, RegexStore& store, Meter& meter,
                           const GrammarLimits& limits)
    : network_(network), unlike_(network, store), store_(store), meter_(meter), limits_(limits) {
  records_.push_back({0, 0, false, nullptr});  // kDead
  frames_.push_back({kAccept, kBottom});
  stacks_.push_back({0, 1, 0, false});
  stack_ids_.emplace(hash_of(frames_.data(), 1, 1), kBottom);
  Growing growing;
  growing.accepting = network.accepts_empty();
  growing.calls[network.rank(network.root())] = {network.root(), kBottom};
  open_places(growing);
  start_ = intern_state(growing);
}

StackId ParserStates::intern_stack(std::vector<Frame> frames) {
  const std::uint64_t hash = hash_of(frames.data(), frames.size(), 1);
  for (auto [it, end] = stack_ids_.equal_range(hash); it != end; ++it) {
    const Stack& stack = stacks_[it->second];
    if (std::equal(frames.begin(), frames.end(), frames_.begin() + stack.first,
                   frames_.begin() + stack.first + stack.count)) {
      return it->second;
    }
  }
  std::uint32_t depth = 0;
  bool remembers = false;
  for (const Frame& frame : frames) {
    depth = std::max(depth, stacks_[frame.below].depth + 1);
    remembers = remembers || UnlikeItems::is_own(frame.place);
  }
  const auto id = static_cast<StackId>(stacks_.size());
  stacks_.push_back({static_cast<std::uint32_t>(frames_.size()),
                     static_cast<std::uint32_t>(frames.size()), depth, remembers});
  frames_.insert(frames_.end(), frames.begin(), frames.end());
  stack_ids_.emplace(hash, id);
  memory_ += sizeof(Stack) + frames.size() * sizeof(Frame) + 48;
  return id;
}

StackId ParserStates::push(StateId place, StackId below) {
  place = unlike_.entered(place);
  // Nothing to come back for: the rule on top ends where this one ends.
  if (!UnlikeItems::is_own(place) && network_.closure(place).only_final()) return below;
  return intern_stack({{place, below}});
}

StackId ParserStates::written(StackId stack, std::uint8_t byte) {
  if (!stacks_[stack].remembers) return stack;
  const Stack top = stacks_[stack];
  std::vector<Frame> frames(frames_.begin() + top.first, frames_.begin() + top.first + top.count);
  for (Frame& frame : frames) {
    if (UnlikeItems::is_own(frame.place)) frame.place = unlike_.written(frame.place, byte);
  }
  std::sort(frames.begin(), frames.end());
  return intern_stack(std::move(frames));
}

StackId ParserStates::united(StackId a, StackId b) {
  if (a == b) return a;
  if (a > b) std::swap(a, b);
  const std::uint64_t key = std::uint64_t{a} << 32 | b;
  if (const auto known = unions_.find(key); known != unions_.end()) return known->second;
  meter_.count(4);
  std::vector<Frame> merged;
  const auto frames = [&](StackId id) {
    const Stack& stack = stacks_[id];
    return std::vector<Frame>(frames_.begin() + stack.first,
                              frames_.begin() + stack.first + stack.count);
  };
  std::vector<Frame> all = frames(a);
  const auto more = frames(b);
  all.insert(all.end(), more.begin(), more.end());
  std::sort(all.begin(), all.end());
  for (const Frame& frame : all) {
    if (!merged.empty() && merged.back().place == frame.place) {
      merged.back().below = united(merged.back().below, frame.below);
    } else {
      merged.push_back(frame);
    }
  }
  const StackId id = intern_stack(std::move(merged));
  unions_.emplace(key, id);
  memory_ += 48;
  return id;
}

// The lexemes and calls of a place whose rule returns to `stack`.
void ParserStates::enter(const Network::Closure& closure, StackId stack, Growing& growing) {
  meter_.count(static_cast<std::uint32_t>(closure.lexemes.size()));
  if (stacks_[stack].depth >= static_cast<std::uint32_t>(limits_.depth)) return;
  for (const Network::Edge& edge : closure.lexemes) {
    growing.threads.push_back({edge.what, push(edge.target, stack)});
  }
  for (const Network::Edge& edge : closure.calls) {
    const StackId returns = push(edge.target, stack);
    const auto [at, is_new] =
        growing.calls.try_emplace(network_.rank(edge.what), edge.what, returns);
    if (!is_new) at->second.second = united(at->second.second, returns);
  }
}

// A lexeme on top of `stack` has ended: so may have the rules beneath it.
void ParserStates::ended(StackId stack, Growing& growing) {
  std::vector<StackId> work{stack};
  while (!work.empty()) {
    const Stack top = stacks_[work.back()];
    work.pop_back();
    for (std::uint32_t i = 0; i < top.count; ++i) {
      const Frame frame = frames_[top.first + i];
      meter_.count();
      if (frame.place == kAccept) {
        growing.accepting = true;
        continue;
      }
      const auto known = std::find(growing.places.begin(), growing.places.end(), frame);
      if (known != growing.places.end()) continue;
      growing.places.push_back(frame);
      if (closure(frame.place).final) work.push_back(frame.below);
    }
  }
}

// From the places that were returned to, everything that can be read next.
void ParserStates::open_places(Growing& growing) {
  std::sort(growing.places.begin(), growing.places.end());
  for (std::size_t i = 0; i < growing.places.size();) {
    const Frame place = growing.places[i];
    StackId stack = place.below;
    for (++i; i < growing.places.size() && growing.places[i].place == place.place; ++i) {
      stack = united(stack, growing.places[i].below);
    }
    enter(closure(place.place), stack, growing);
  }
  while (!growing.calls.empty()) {
    const auto [rule, stack] = growing.calls.begin()->second;
    growing.calls.erase(growing.calls.begin());
    enter(network_.closure(network_.start(rule)), stack, growing);
  }
}

ParserState ParserStates::intern_state(Growing& growing) {
  auto& threads = growing.threads;
  std::sort(threads.begin(), threads.end(), [](const Thread& a, const Thread& b) {
    return a.rest != b.rest ? a.rest < b.rest : a.stack < b.stack;
  });
  std::size_t kept = 0;
  for (const Thread& thread : threads) {
    if (kept > 0 && threads[kept - 1].rest == thread.rest) {
      threads[kept - 1].stack = united(threads[kept - 1].stack, thread.stack);
    } else {
      threads[kept++] = thread;
    }
  }
  threads.resize(kept);
  if (threads.empty() && !growing.accepting) return kDead;
  const std::uint64_t hash = hash_of(threads.data(), kept, growing.accepting ? 3 : 5);
  for (auto [it, end] = state_ids_.equal_range(hash); it != end; ++it) {
    const auto known = this->threads(it->second);
    if (records_[it->second].accepting == growing.accepting &&
        std::equal(known.begin(), known.end(), threads.begin(), threads.end())) {
      return it->second;
    }
  }
  const auto id = static_cast<ParserState>(records_.size());
  records_.push_back({static_cast<std::uint32_t>(threads_.size()), static_cast<std::uint32_t>(kept),
                      growing.accepting, nullptr});
  threads_.insert(threads_.end(), threads.begin(), threads.end());
  state_ids_.emplace(hash, id);
  memory_ += sizeof(Record) + kept * sizeof(Thread) + 48;
  constexpr std::size_t kUnlikeBytes = 120;
  if (memory_ + unlike_.size() * kUnlikeBytes + store_.memory_bytes() > limits_.memory_bytes) {
    throw GrammarFailure(GrammarErrorKind::limit, "the grammar needs too much memory");
  }
  return id;
}

ParserState ParserStates::step_slow(ParserState state, std::uint8_t byte) {
  Growing growing;
  for (std::uint32_t i = 0; i < records_[state].count; ++i) {
    const Thread thread = threads_[records_[state].first + i];
    const RegexId rest = store_.step(thread.rest, byte);
    if (rest == kNothing) continue;
    const StackId stack = written(thread.stack, byte);
    if (store_.nullable(rest)) ended(stack, growing);
    if (!store_.finished(rest)) growing.threads.push_back({rest, stack});
  }
  meter_.count(records_[state].count);
  ParserState next = kDead;
  if (!growing.threads.empty() || !growing.places.empty() || growing.accepting) {
    open_places(growing);
    next = intern_state(growing);
  }
  auto& row = records_[state].next;
  if (row == nullptr) {
    row = std::make_unique<std::array<ParserState, 256>>();
    row->fill(kUnknown);
    memory_ += sizeof *row;
  }
  (*row)[byte] = next;
  return next;
}

ParserState ParserStates::after(StackId stack) {
  if (const auto known = after_.find(stack); known != after_.end()) return known->second;
  Growing growing;
  ended(stack, growing);
  open_places(growing);
  const ParserState state = intern_state(growing);
  after_.emplace(stack, state);
  memory_ += 48;
  return state;
}

ByteSet ParserStates::first_bytes(ParserState state) {
  ByteSet set;
  for (std::uint32_t i = 0; i < records_[state].count; ++i) {
    set |= store_.first_bytes(threads_[records_[state].first + i].rest);
  }
  return set;
}

}  // namespace quire::structured
