// Filters that give items one at a time: map, select and reject, batch, slice.

#include <algorithm>

#include "jinja/error.h"
#include "jinja/evaluation.h"
#include "jinja/filters/filter_functions.h"
#include "jinja/filters/filters.h"
#include "jinja/filters/is_tests.h"
#include "jinja/values/arithmetic.h"
#include "jinja/values/repr.h"
#include "jinja/values/sequence.h"

namespace quire::jinja {
namespace {

// Begins when the first item is asked for, as Python's generators do; what is false has no items.
class LazyItems : public Iterator {
 public:
  LazyItems(Evaluation& evaluation, Value source, Arguments arguments)
      : evaluation_(evaluation), source_(std::move(source)), arguments_(std::move(arguments)) {}

  bool next(Value& item) override {
    if (!started_) {
      started_ = true;
      if (!truthy(source_)) return false;
      prepare();
      items_ = iterate(source_);
    }
    evaluation_.check_stack();
    while (items_ && items_->next(item)) {
      evaluation_.step();
      if (take(item)) return true;
    }
    return false;
  }

 protected:
  virtual void prepare() = 0;
  virtual bool take(Value& item) = 0;  // may replace it; false leaves it out

  Evaluation& evaluation_;
  Value source_;
  Arguments arguments_;
  std::unique_ptr<Iterator> items_;
  bool started_ = false;
};

class MappedItems : public LazyItems {
 public:
  using LazyItems::LazyItems;

 private:
  void prepare() override {
    List& given = arguments_.positional;
    const bool by_attribute =
        given.empty() && std::any_of(arguments_.named.begin(), arguments_.named.end(),
                                     [](const auto& entry) { return entry.first == "attribute"; });
    if (by_attribute) {
      for (const auto& [name, value] : arguments_.named) {
        if (name != "attribute" && name != "default") {
          fail(ErrorKind::runtime, "Unexpected keyword argument '" + name + "'");
        }
      }
      const List bound = bind("map", arguments_, {"attribute", "default"}, 1);
      getter_ = attribute_getter(evaluation_, bound[0], bound[1]);
      return;
    }
    if (given.empty()) fail(ErrorKind::runtime, "map requires a filter argument");
    filter_ = require_filter(given[0]);
    given.erase(given.begin());
  }

  bool take(Value& item) override {
    if (filter_ == nullptr) {
      item = getter_(item);
      return true;
    }
    Arguments arguments = arguments_;
    item = filter_(evaluation_, item, arguments);
    return true;
  }

  Getter getter_;
  FilterFunction filter_ = nullptr;
};

class SelectedItems : public LazyItems {
 public:
  SelectedItems(Evaluation& evaluation, Value source, Arguments arguments, bool wanted,
                bool by_attribute)
      : LazyItems(evaluation, std::move(source), std::move(arguments)),
        wanted_(wanted),
        by_attribute_(by_attribute) {}

 private:
  void prepare() override {
    List& given = arguments_.positional;
    if (by_attribute_) {
      if (given.empty()) fail(ErrorKind::runtime, "Missing parameter for attribute name");
      getter_ = attribute_getter(evaluation_, given[0]);
      given.erase(given.begin());
    }
    if (given.empty()) return;
    name_ = given[0];
    given.erase(given.begin());
  }

  bool take(Value& item) override {
    const Value looked_at = getter_ ? getter_(item) : item;
    if (name_.is_none()) return truthy(looked_at) == wanted_;
    if (test_ == nullptr) test_ = require_test(name_);
    Arguments arguments = arguments_;
    return test_(evaluation_, looked_at, arguments) == wanted_;
  }

  bool wanted_;
  bool by_attribute_;
  Getter getter_;
  Value name_;
  TestFunction test_ = nullptr;
};

Value map(Evaluation& evaluation, const Value& subject, Arguments& arguments) {
  return make_generator(std::make_unique<MappedItems>(evaluation, subject, std::move(arguments)),
                        subject);
}

template <bool wanted, bool by_attribute>
Value select(Evaluation& evaluation, const Value& subject, Arguments& arguments) {
  return make_generator(std::make_unique<SelectedItems>(evaluation, subject, std::move(arguments),
                                                        wanted, by_attribute),
                        subject);
}

class BatchedItems : public Iterator {
 public:
  BatchedItems(Evaluation& evaluation, Value source, Value size, Value fill)
      : evaluation_(evaluation),
        source_(std::move(source)),
        size_(std::move(size)),
        fill_(std::move(fill)) {}

  bool next(Value& batch) override {
    if (!items_) items_ = iterate(source_);
    List taken = std::move(rest_);
    rest_.clear();
    for (Value item; items_->next(item);) {
      evaluation_.step();
      evaluation_.charge(sizeof(Value));
      if (equal(Value(std::int64_t(taken.size())), size_)) {
        rest_.push_back(std::move(item));
        batch = Value(std::move(taken));
        return true;
      }
      taken.push_back(std::move(item));
    }
    if (taken.empty()) return false;
    if (is_given(fill_) && !fill_.is_none()) {
      const std::int64_t missing = as_index(size_) - std::int64_t(taken.size());
      if (missing > 0) {
        evaluation_.charge(std::uint64_t(missing) > SIZE_MAX / 64
                               ? SIZE_MAX
                               : std::uint64_t(missing) * sizeof(Value));
        taken.insert(taken.end(), std::size_t(missing), fill_);
      }
    }
    batch = Value(std::move(taken));
    return true;
  }

 private:
  Evaluation& evaluation_;
  Value source_;
  Value size_;
  Value fill_;
  std::unique_ptr<Iterator> items_;
  List rest_;  // the first item of the next batch
};

Value batch(Evaluation& evaluation, const Value& subject, Arguments& arguments) {
  const List bound = bind("batch", arguments, {"linecount", "fill_with"}, 1);
  return make_generator(std::make_unique<BatchedItems>(evaluation, subject, bound[0], bound[1]),
                        subject);
}

// So many lists, of which the first take the items that are over.
Value slice_filter(Evaluation& evaluation, const Value& subject, Arguments& arguments) {
  const List bound = bind("slice", arguments, {"slices", "fill_with"}, 1);
  const List items = collect(evaluation, subject);
  const std::int64_t slices = as_index(bound[0]);
  if (slices == 0) fail(ErrorKind::arithmetic, "integer division or modulo by zero");
  const auto count = std::size_t(std::max<std::int64_t>(slices, 0));
  evaluation.charge(count > SIZE_MAX / 256 ? SIZE_MAX : count * 128);
  List lists;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const bool longer = i < items.size() % count;
    const std::size_t end = begin + items.size() / count + longer;
    List part(items.begin() + std::ptrdiff_t(begin), items.begin() + std::ptrdiff_t(end));
    if (is_given(bound[1]) && !bound[1].is_none() && !longer) part.push_back(bound[1]);
    lists.emplace_back(std::move(part));
    begin = end;
  }
  const Value all(std::move(lists));
  return make_generator(iterate(all), all);
}

constexpr NamedFilter kFilters[] = {{"map", map},
                                    {"select", select<true, false>},
                                    {"reject", select<false, false>},
                                    {"selectattr", select<true, true>},
                                    {"rejectattr", select<false, true>},
                                    {"batch", batch},
                                    {"slice", slice_filter}};

}  // namespace

FilterTable lazy_filters() { return {kFilters, std::size(kFilters)}; }

}  // namespace quire::jinja
