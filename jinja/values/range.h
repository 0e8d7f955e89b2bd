#pragma once
// Python's range: a sequence that is computed when asked.

#include <cstdint>

#include "jinja/values/object.h"

namespace quire::jinja {

class Range : public Object {
 public:
  Range(std::int64_t start, std::int64_t stop, std::int64_t step)
      : start_(start), stop_(stop), step_(step) {}
  std::string_view type_name() const override { return "range"; }
  void append_repr(std::string& out, int depth) const override;
  std::optional<std::size_t> length() const override;
  std::unique_ptr<Iterator> iterate() override;
  bool reversible() const override { return true; }
  bool has_items() const override { return true; }
  Value item(const Value& key) const override;
  Value slice(const Slice& by) const override;
  Value attribute(std::string_view name) override;
  bool equals(const Object& other) const override;
  std::optional<bool> contains(const Value& item) const override;
  Value at(std::size_t index) const { return Value(start_ + std::int64_t(index) * step_); }

 private:
  std::int64_t start_;
  std::int64_t stop_;
  std::int64_t step_;
};

}  // namespace quire::jinja
