#include "jinja/evaluation.h"

#include <algorithm>

#include "jinja/error.h"

namespace quire::jinja {

Evaluation::~Evaluation() {
  for (const auto& object : kept_) object->clear();
}

Value Evaluation::resolve(std::string_view name) const {
  if (const Value* value = names_.find(name)) return *value;
  if (const Value* value = globals_.find(name)) return *value;
  return Value::missing();
}

Activation* Evaluation::new_activation(Activation* outer, std::size_t num_slots) {
  charge(sizeof(Activation) + num_slots * sizeof(Value));
  running_.push_back(std::make_unique<Activation>());
  Activation* activation = running_.back().get();
  activation->outer = outer;
  activation->slots.assign(num_slots, Value::missing());
  return activation;
}

void Evaluation::end_activation() {
  if (running_.back()->captured) captured_.push_back(std::move(running_.back()));
  running_.pop_back();
}

void Evaluation::keep(std::shared_ptr<Object> object) {
  charge(100);  // about the size of one
  kept_.push_back(std::move(object));
}

double Evaluation::cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return double(time.tv_sec) + double(time.tv_nsec) * 1e-9;
}

void Evaluation::check_steps() {
  if (steps_ > limits_.steps) {
    fail(ErrorKind::limit,
         "the template does not end: more than " + std::to_string(limits_.steps) + " steps");
  }
  const double now = cpu_seconds();
  if (cpu_begin_ < 0) cpu_begin_ = now;
  if (now - cpu_begin_ > limits_.cpu_seconds) {
    fail(ErrorKind::limit, "the template takes more than 3 seconds");
  }
  next_check_ = std::min(steps_ + kStepsPerCheck, limits_.steps);
}

void Evaluation::fail_bytes() const {
  fail(ErrorKind::limit,
       "the template works on more than " + std::to_string(limits_.bytes) + " bytes");
}

void Evaluation::fail_text() const {
  fail(ErrorKind::limit,
       "the template makes a text of more than " + std::to_string(limits_.output_bytes) + " bytes");
}

void Evaluation::fail_stack() const {
  fail(ErrorKind::recursion, "maximum recursion depth exceeded");
}

}  // namespace quire::jinja
