#pragma once
// The parser over a network, one byte at a time and for all readings at once. A state is a set of
// threads, each the rest of a lexeme and the stack beneath it; stacks share their tails, and
// threads with one rest share a stack, so that an ambiguous grammar costs no more than its places.
// States are interned: equal sets have one number, their successors are kept, and what was worked
// out for a number (a mask, say) holds wherever it comes up again. Not thread-safe; who shares one
// locks.

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/structured/grammar/unlike_items.h"

namespace quire::structured {

using ParserState = std::uint32_t;
using StackId = std::uint32_t;
inline constexpr ParserState kDead = 0;

class ParserStates {
 public:
  struct Thread {
    RegexId rest;
    StackId stack;
    bool operator==(const Thread&) const = default;
  };

  ParserStates(Network& network, RegexStore& store, Meter& meter, const GrammarLimits& limits);

  ParserState start() const { return start_; }
  // kDead: no text of the grammar goes on like this.
  ParserState step(ParserState state, std::uint8_t byte) {
    const auto& next = records_[state].next;
    if (next != nullptr && (*next)[byte] != kUnknown) return (*next)[byte];
    return step_slow(state, byte);
  }
  bool accepting(ParserState state) const { return records_[state].accepting; }
  std::span<const Thread> threads(ParserState state) const {
    const Record& record = records_[state];
    return {threads_.data() + record.first, record.count};
  }
  // Where a thread with this stack stands once its lexeme has ended.
  ParserState after(StackId stack);
  // What has been read of the lexeme matters to where it goes on.
  bool remembers(StackId stack) const { return stacks_[stack].remembers; }
  // Bytes that may come next.
  ByteSet first_bytes(ParserState state);
  std::size_t size() const { return records_.size(); }
  std::size_t memory_bytes() const { return memory_; }

 private:
  static constexpr std::uint32_t kUnknown = 0xffffffff;
  static constexpr StateId kAccept = 0xffffffff;

  struct Frame {  // go on at `place` when the rule or lexeme on top ends
    StateId place;
    StackId below;
    auto operator<=>(const Frame&) const = default;
  };
  struct Stack {
    std::uint32_t first, count;  // in frames_, ascending
    std::uint32_t depth;
    bool remembers;  // a place of unlike_
  };
  struct Record {
    std::uint32_t first, count;
    bool accepting;
    std::unique_ptr<std::array<ParserState, 256>> next;
  };
  struct Growing;  // a state while it is collected

  ParserState step_slow(ParserState state, std::uint8_t byte);
  StackId intern_stack(std::vector<Frame> frames);
  StackId united(StackId a, StackId b);
  StackId push(StateId place, StackId below);
  StackId written(StackId stack, std::uint8_t byte);
  const Network::Closure& closure(StateId place) {
    return UnlikeItems::is_own(place) ? unlike_.closure(place) : network_.closure(place);
  }
  void enter(const Network::Closure& closure, StackId stack, Growing& growing);
  void ended(StackId stack, Growing& growing);
  void open_places(Growing& growing);
  ParserState intern_state(Growing& growing);

  Network& network_;
  UnlikeItems unlike_;
  RegexStore& store_;
  Meter& meter_;
  const GrammarLimits& limits_;
  std::vector<Frame> frames_;
  std::vector<Stack> stacks_;
  std::vector<Thread> threads_;
  std::vector<Record> records_;
  std::unordered_multimap<std::uint64_t, StackId> stack_ids_;
  std::unordered_multimap<std::uint64_t, ParserState> state_ids_;
  std::unordered_map<std::uint64_t, StackId> unions_;
  std::unordered_map<StackId, ParserState> after_;
  std::size_t memory_ = 0;
  ParserState start_ = kDead;
};

}  // namespace quire::structured
