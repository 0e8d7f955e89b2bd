#include "jinja/error.h"
#include "jinja/evaluation.h"
#include "jinja/syntax/statements.h"
#include "jinja/values/functions.h"
#include "jinja/values/sequence.h"

namespace quire::jinja {
namespace {

// {% for … if test %}: tests each item when it is asked for.
class FilteredItems : public Iterator {
 public:
  FilteredItems(const ForStmt& loop, Frame& frame, std::unique_ptr<Iterator> items)
      : loop_(loop), frame_(frame), items_(std::move(items)) {}

  bool next(Value& item) override {
    if (!entered_) loop_.test_scope.enter(frame_.evaluation, frame_.locals);
    entered_ = true;
    while (items_->next(item)) {
      frame_.evaluation.step();
      loop_.test_target->assign(frame_, item);
      if (truthy(loop_.test->evaluate(frame_))) return true;
    }
    return false;
  }

 private:
  const ForStmt& loop_;
  Frame frame_;
  std::unique_ptr<Iterator> items_;
  bool entered_ = false;
};

// The variable `loop`. Looks one item ahead only where it is asked about what follows.
class LoopContext : public Object, public std::enable_shared_from_this<LoopContext> {
 public:
  LoopContext(const ForStmt& loop, Frame& frame, const Value& source,
              std::unique_ptr<Iterator> items, int depth)
      : loop_(loop),
        evaluation_(frame.evaluation),
        outer_(frame.locals),
        items_(std::move(items)),
        depth_(depth) {
    contain(source);
    if (!loop.test) length_ = quire::jinja::length(source);
  }

  bool advance(Value& item) {
    if (has_after_) {
      item = std::move(after_);
      has_after_ = false;
    } else if (!items_->next(item)) {
      return false;
    }
    ++index0_;
    before_ = std::move(current_);
    current_ = item;
    return true;
  }

  std::string_view type_name() const override { return "LoopContext"; }
  void append_repr(std::string& out, int) const override {
    out += "<LoopContext " + std::to_string(index0_ + 1) + "/" +
           std::to_string(const_cast<LoopContext*>(this)->count()) + ">";
  }
  bool truthy() const override { return const_cast<LoopContext*>(this)->count() > 0; }
  std::optional<std::size_t> length() const override {
    return std::size_t(const_cast<LoopContext*>(this)->count());
  }
  bool callable() const override { return true; }
  Value attribute(std::string_view name) override;
  Value call(Evaluation& evaluation, Arguments arguments) override;
  void clear() override { last_changed_ = Value::missing(); }

 private:
  // Reads all items that are left where the number is not known.
  std::int64_t count() {
    if (!length_) {
      List rest;
      for (Value item; items_->next(item);) {
        evaluation_.step();
        evaluation_.charge(sizeof(Value));
        rest.push_back(std::move(item));
      }
      length_ = rest.size() + std::size_t(index0_ + 1) + has_after_;
      items_ = quire::jinja::iterate(Value(std::move(rest)));
    }
    return std::int64_t(*length_);
  }
  bool peek() {
    if (!has_after_) has_after_ = items_->next(after_);
    return has_after_;
  }
  Value cycle(const Arguments& arguments) const;
  bool changed(const Arguments& arguments);

  const ForStmt& loop_;
  Evaluation& evaluation_;
  Activation* outer_;
  std::unique_ptr<Iterator> items_;
  int depth_;
  std::int64_t index0_ = -1;
  std::optional<std::size_t> length_;
  Value before_ = Value::missing();
  Value current_ = Value::missing();
  Value after_;
  bool has_after_ = false;
  Value last_changed_ = Value::missing();
};

Value LoopContext::cycle(const Arguments& arguments) const {
  const List& choices = arguments.positional;
  if (choices.empty()) fail(ErrorKind::type, "no items for cycling given");
  return choices[std::size_t(index0_) % choices.size()];
}

bool LoopContext::changed(const Arguments& arguments) {
  Value now(Tuple{arguments.positional});
  evaluation_.charge(now.extent().weight);
  if (equal(now, last_changed_)) return false;
  if (last_changed_.is(Value::Kind::missing)) evaluation_.keep(shared_from_this());
  last_changed_ = std::move(now);
  return true;
}

Value LoopContext::attribute(std::string_view name) {
  if (name == "index") return Value(index0_ + 1);
  if (name == "index0") return Value(index0_);
  if (name == "first") return Value(index0_ == 0);
  if (name == "last") return Value(!peek());
  if (name == "length") return Value(count());
  if (name == "revindex") return Value(count() - index0_);
  if (name == "revindex0") return Value(count() - index0_ - 1);
  if (name == "depth") return Value(depth_ + 1);
  if (name == "depth0") return Value(depth_);
  if (name == "previtem") {
    return index0_ > 0 ? before_ : Value::undefined("there is no previous item");
  }
  if (name == "nextitem") return peek() ? after_ : Value::undefined("there is no next item");
  if (name == "cycle") {
    return make_function("cycle", [self = shared_from_this()](Evaluation&, Arguments& arguments) {
      return self->cycle(arguments);
    });
  }
  if (name == "changed") {
    return make_function("changed", [self = shared_from_this()](Evaluation&, Arguments& arguments) {
      return Value(self->changed(arguments));
    });
  }
  return Value::missing();
}

Value LoopContext::call(Evaluation& evaluation, Arguments arguments) {
  if (!loop_.recursive) {
    fail(ErrorKind::type, "The loop must have the 'recursive' marker to be called recursively.");
  }
  const List bound = bind("loop", arguments, {"iterable"}, 1);
  std::string text;
  Frame frame{evaluation, outer_, &text};
  loop_.iterate(frame, bound[0], depth_ + 1);
  return evaluation.text(std::move(text), evaluation.autoescape);
}

}  // namespace

Flow ForStmt::execute(Frame& frame) const {
  const Value source = items->evaluate(frame);
  if (recursive) {
    iterate(frame, source, 0);
    return Flow::normal;
  }
  return loop_over(frame, frame, source, 0);
}

void ForStmt::iterate(Frame& frame, const Value& source, int depth) const {
  frame.locals->captured = true;  // whoever keeps `loop` may call it later
  const RunningFunction running(frame.evaluation, frame.locals, own);
  Frame inner{frame.evaluation, running.locals(), frame.out};
  running.locals()->captured = has_loop;
  loop_over(frame, inner, source, depth);
}

Flow ForStmt::loop_over(Frame& outer, Frame& frame, const Value& source, int depth) const {
  std::unique_ptr<Iterator> iterator = quire::jinja::iterate(source);
  if (test) iterator = std::make_unique<FilteredItems>(*this, frame, std::move(iterator));
  std::shared_ptr<LoopContext> context;
  if (has_loop) {
    frame.locals->captured = true;
    context = std::make_shared<LoopContext>(*this, outer, source, std::move(iterator), depth);
  }

  bool completed_one = false;
  Flow flow = Flow::normal;
  for (Value item;
       flow != Flow::stop_loop && (context ? context->advance(item) : iterator->next(item));) {
    frame.evaluation.step();
    target->assign(frame, std::move(item));
    if (context) variable(frame.locals, loop_variable) = Value(std::shared_ptr<Object>(context));
    loop_scope.enter(frame.evaluation, frame.locals);
    flow = run(body, frame);
    completed_one = completed_one || flow == Flow::normal;
  }
  loop_scope.leave(frame.locals);
  if (completed_one || otherwise.empty()) return Flow::normal;
  else_scope.enter(frame.evaluation, frame.locals);
  flow = run(otherwise, frame);
  else_scope.leave(frame.locals);
  return flow;
}

}  // namespace quire::jinja
