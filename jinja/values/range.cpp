#include "jinja/values/range.h"

#include "jinja/values/arithmetic.h"
#include "jinja/values/sequence.h"

namespace quire::jinja {
namespace {

class RangeIterator : public Iterator {
 public:
  explicit RangeIterator(const Range& range) : range_(range) {}
  bool next(Value& item) override {
    if (at_ == *range_.length()) return false;
    item = range_.at(at_++);
    return true;
  }

 private:
  Range range_;
  std::size_t at_ = 0;
};

}  // namespace

void Range::append_repr(std::string& out, int) const {
  out += "range(" + std::to_string(start_) + ", " + std::to_string(stop_);
  if (step_ != 1) out += ", " + std::to_string(step_);
  out += ")";
}

std::optional<std::size_t> Range::length() const {
  if (step_ > 0 ? start_ >= stop_ : start_ <= stop_) return 0;
  const std::uint64_t span = step_ > 0 ? std::uint64_t(stop_) - std::uint64_t(start_)
                                       : std::uint64_t(start_) - std::uint64_t(stop_);
  const std::uint64_t stride = step_ > 0 ? std::uint64_t(step_) : 0 - std::uint64_t(step_);
  return (span - 1) / stride + 1;
}

std::unique_ptr<Iterator> Range::iterate() { return std::make_unique<RangeIterator>(*this); }

Value Range::item(const Value& key) const {
  if (!key.is(Value::Kind::integer) && !key.is(Value::Kind::boolean)) return Value::missing();
  const auto size = std::int64_t(*length());
  const std::int64_t index = as_small(key) < 0 ? as_small(key) + size : as_small(key);
  return index < 0 || index >= size ? Value::missing() : at(std::size_t(index));
}

Value Range::slice(const Slice& by) const {
  const SliceRange taken = resolve(by, std::int64_t(*length()));
  const std::int64_t start = start_ + taken.first * step_;
  const std::int64_t step = step_ * taken.step;
  return make_object<Range>(start, start + taken.count * step, step);
}

Value Range::attribute(std::string_view name) {
  if (name == "start") return Value(start_);
  if (name == "stop") return Value(stop_);
  return name == "step" ? Value(step_) : Value::missing();
}

bool Range::equals(const Object& other) const {
  const auto* range = dynamic_cast<const Range*>(&other);
  if (range == nullptr || length() != range->length()) return false;
  const std::size_t size = *length();
  return size == 0 || (start_ == range->start_ && (size == 1 || step_ == range->step_));
}

std::optional<bool> Range::contains(const Value& item) const {
  if (!item.is(Value::Kind::integer) && !item.is(Value::Kind::boolean)) return {};
  const std::int64_t value = as_small(item);
  if (step_ > 0 ? value < start_ || value >= stop_ : value > start_ || value <= stop_) return false;
  return (value - start_) % step_ == 0;
}

}  // namespace quire::jinja
