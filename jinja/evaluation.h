#pragma once
// The state of one rendering: names, limits, where it is. Lives on the rendering thread's stack.

#include <cstdint>
#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "jinja/scope.h"
#include "jinja/values/dict.h"
#include "jinja/values/object.h"
#include "jinja/values/value.h"

namespace quire::jinja {

struct BlockStmt;
struct TemplateTree;

// Far above what any real conversation needs, far below a second of work.
struct Limits {
  std::uint64_t steps = 10'000'000;       // nodes evaluated, items visited
  std::uint64_t bytes = 256 << 20;        // of everything built or walked during one rendering
  std::uint64_t output_bytes = 16 << 20;  // of one text
  std::intptr_t stack_bytes = 1 << 20;    // calls inside each other
  double cpu_seconds = 3;                 // of the thread; for work that no count foresees
};

constexpr std::uint64_t kCallSteps = 20;  // what calling a macro costs beside its body

constexpr std::int64_t kMaxRange = 100'000;  // items, as jinja2's sandbox has it

// The variables of one running macro, block or template; macros made in it may read them later.
struct Activation {
  Activation* outer = nullptr;
  List slots;
  bool captured = false;  // a macro refers to it: keep until the end
};

inline Value& variable(Activation* locals, Slot slot) {
  for (int hop = 0; hop < slot.hops; ++hop) locals = locals->outer;
  return locals->slots[std::size_t(slot.index)];
}

class Evaluation {
 public:
  Evaluation(const Dict& globals, const Dict& names, std::tm now)
      : names_(names), globals_(globals), now_(now) {}
  ~Evaluation();
  Evaluation(const Evaluation&) = delete;

  void step(std::uint64_t n = 1) {
    if ((steps_ += n) > next_check_) check_steps();
  }
  // For work or memory that grows with its operands; called before it is done.
  void charge(std::uint64_t bytes) {
    if (bytes > limits_.bytes || (bytes_ += bytes) > limits_.bytes) fail_bytes();
  }
  void charge_text(std::uint64_t bytes) {
    if (bytes > limits_.output_bytes) fail_text();
    charge(bytes);
  }
  Value text(std::string utf8, bool safe = false) {
    charge_text(utf8.size());
    return Value(std::move(utf8), safe);
  }
  Value list(List items) {
    charge(items.size() * sizeof(Value));
    return Value(std::move(items));
  }

  // What a name means that no scope has set; missing where nobody has.
  Value resolve(std::string_view name) const;
  void set_name(std::string_view name, Value value) { names_.set(name, std::move(value)); }
  const Dict& names() const { return names_; }
  void swap_names(Dict& other) { std::swap(names_, other); }

  Activation* new_activation(Activation* outer, std::size_t num_slots);
  void end_activation();                      // of the newest one
  void keep(std::shared_ptr<Object> object);  // an object that may come to refer to itself

  // Fails (recursion) where the stack that this rendering may use is spent.
  void check_stack() const {
    const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
    if (std::intptr_t(stack_begin_ - here) > limits_.stack_bytes) fail_stack();
  }

  const std::tm& now() const { return now_; }
  const Limits& limits() const { return limits_; }

  int line = 0;             // of the statement that is running
  bool autoescape = false;  // inside {% autoescape true %}
  const TemplateTree* tree = nullptr;

 private:
  void check_steps();
  [[noreturn]] void fail_bytes() const;
  [[noreturn]] void fail_text() const;
  [[noreturn]] void fail_stack() const;

  Dict names_;
  const Dict& globals_;
  std::tm now_;
  Limits limits_;
  std::uintptr_t stack_begin_ = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  static double cpu_seconds();
  // A short template never reads the clock, which is a system call.
  static constexpr std::uint64_t kStepsPerCheck = 1024;
  double cpu_begin_ = -1;  // at the first check
  std::uint64_t steps_ = 0;
  std::uint64_t next_check_ = kStepsPerCheck;  // steps after which the limits are looked at
  std::uint64_t bytes_ = 0;
  std::vector<std::unique_ptr<Activation>> running_;
  std::vector<std::unique_ptr<Activation>> captured_;
  std::vector<std::shared_ptr<Object>> kept_;  // emptied at the end, which breaks circles
};

// A function's variables, for as long as it runs.
class RunningFunction {
 public:
  RunningFunction(Evaluation& evaluation, Activation* outer, const Function& function)
      : evaluation_(evaluation) {
    evaluation.check_stack();
    evaluation.step(kCallSteps);
    locals_ = evaluation.new_activation(outer, function.slots.size());
  }
  ~RunningFunction() { evaluation_.end_activation(); }
  RunningFunction(const RunningFunction&) = delete;
  Activation* locals() const { return locals_; }

 private:
  Evaluation& evaluation_;
  Activation* locals_;
};

}  // namespace quire::jinja
