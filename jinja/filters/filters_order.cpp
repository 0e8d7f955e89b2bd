// Filters that compare: sort, groupby, min, max, sum, unique and dictsort.

#include <algorithm>

#include "jinja/error.h"
#include "jinja/evaluation.h"
#include "jinja/filters/filter_functions.h"
#include "jinja/values/arithmetic.h"
#include "jinja/values/dict.h"
#include "jinja/values/sequence.h"
#include "jinja/values/text_split.h"

namespace quire::jinja {
namespace {

using Kind = Value::Kind;

struct Keyed {
  Value key;
  Value item;
};

bool key_less(Evaluation& evaluation, const Value& a, const Value& b) {
  evaluation.step(5);
  evaluation.charge(std::min(a.extent().weight, b.extent().weight));
  return ordered(Order::less, a, b);
}

// A merge sort of our own: the order comes from templates and need not be one, which the library's
// may not survive.
void merge_sort(Evaluation& evaluation, std::vector<Keyed>& items, std::vector<Keyed>& spare,
                std::size_t begin, std::size_t end) {
  if (end - begin < 2) return;
  const std::size_t middle = begin + (end - begin) / 2;
  merge_sort(evaluation, items, spare, begin, middle);
  merge_sort(evaluation, items, spare, middle, end);
  std::size_t left = begin;
  std::size_t right = middle;
  for (std::size_t to = begin; to < end; ++to) {
    const bool take_right =
        left == middle || (right < end && key_less(evaluation, items[right].key, items[left].key));
    spare[to] = std::move(items[take_right ? right++ : left++]);
  }
  std::move(spare.begin() + std::ptrdiff_t(begin), spare.begin() + std::ptrdiff_t(end),
            items.begin() + std::ptrdiff_t(begin));
}

Getter folded(Getter getter, bool case_sensitive) {
  if (case_sensitive) return getter;
  return [getter = std::move(getter)](const Value& item) { return lower_if_text(getter(item)); };
}

// sort(attribute="a,b") sorts by several.
Getter multi_getter(Evaluation& evaluation, const Value& attribute, bool case_sensitive) {
  std::vector<Getter> getters;
  if (attribute.is_string()) {
    for (std::string_view part : split(attribute.string(), ",", -1)) {
      getters.push_back(folded(attribute_getter(evaluation, Value(part)), case_sensitive));
    }
  } else {
    getters.push_back(folded(attribute_getter(evaluation, attribute), case_sensitive));
  }
  return [getters = std::move(getters)](const Value& item) {
    List keys;
    for (const Getter& getter : getters) keys.push_back(getter(item));
    return Value(std::move(keys));
  };
}

// Python's sorted() wants a number here, not just anything that is true.
bool is_reversed(const Value& reverse) { return is_given(reverse) && as_index(reverse) != 0; }

Value sort_filter(Evaluation& evaluation, const Value& subject, Arguments& arguments) {
  const List bound = bind("sort", arguments, {"reverse", "case_sensitive", "attribute"}, 0);
  List items = collect(evaluation, subject);
  sort_by(evaluation, items, is_reversed(bound[0]),
          multi_getter(evaluation, bound[2], flag(bound, 1)));
  return Value(std::move(items));
}

Value dictsort(Evaluation& evaluation, const Value& subject, Arguments& arguments) {
  const List bound = bind("dictsort", arguments, {"case_sensitive", "by", "reverse"}, 0);
  const bool by_key = !is_given(bound[1]) || (bound[1].is_string() && bound[1].string() == "key");
  if (!by_key && !(bound[1].is_string() && bound[1].string() == "value")) {
    fail(ErrorKind::runtime, "You can only sort by either \"key\" or \"value\"");
  }
  if (subject.is_undefined()) fail_undefined(subject);
  if (!subject.is(Kind::dict)) {
    fail(ErrorKind::attribute,
         "'" + std::string(type_name(subject)) + "' object has no attribute 'items'");
  }
  List items;
  evaluation.charge(subject.dict().size() * sizeof(Dict::Entry));
  for (const auto& [key, value] : subject.dict()) items.emplace_back(Tuple{{key, value}});
  const Getter part = [by_key](const Value& item) { return item.items()[by_key ? 0 : 1]; };
  sort_by(evaluation, items, is_reversed(bound[2]), folded(part, flag(bound, 0)));
  return Value(std::move(items));
}

template <bool wants_max>
Value extreme(Evaluation& evaluation, const Value& subject, Arguments& arguments) {
  const List bound = bind(wants_max ? "max" : "min", arguments, {"case_sensitive", "attribute"}, 0);
  const Getter getter = folded(attribute_getter(evaluation, bound[1]), flag(bound, 0));
  const auto items = iterate(subject);
  Value best;
  if (!items->next(best)) return Value::undefined("No aggregated item, sequence was empty.");
  Value best_key = getter(best);
  for (Value item; items->next(item);) {
    Value key = getter(item);
    if (wants_max ? !key_less(evaluation, best_key, key) : !key_less(evaluation, key, best_key))
      continue;
    best = std::move(item);
    best_key = std::move(key);
  }
  return best;
}

Value groupby(Evaluation& evaluation, const Value& subject, Arguments& arguments) {
  const List bound = bind("groupby", arguments, {"attribute", "default", "case_sensitive"}, 1);
  const Getter plain = attribute_getter(evaluation, bound[0], bound[1]);
  const Getter getter = folded(plain, flag(bound, 2));
  List items = collect(evaluation, subject);
  sort_by(evaluation, items, false, getter);
  List groups;
  for (std::size_t begin = 0; begin < items.size();) {
    const Value key = getter(items[begin]);
    std::size_t end = begin + 1;
    const auto same = [&](const Value& item) {
      evaluation.charge(key.extent().weight);
      return equal(key, getter(item));
    };
    while (end < items.size() && same(items[end])) ++end;
    List members(items.begin() + std::ptrdiff_t(begin), items.begin() + std::ptrdiff_t(end));
    groups.emplace_back(Tuple{{plain(items[begin]), Value(std::move(members))}, true});
    begin = end;
  }
  return Value(std::move(groups));
}

Value sum(Evaluation& evaluation, const Value& subject, Arguments& arguments) {
  const List bound = bind("sum", arguments, {"attribute", "start"}, 0);
  const Getter getter = attribute_getter(evaluation, bound[0]);
  Value total = is_given(bound[1]) ? bound[1] : Value(0);
  if (total.is_string())
    fail(ErrorKind::type, "sum() can't sum strings [use ''.join(seq) instead]");
  const auto items = iterate(subject);
  for (Value item; items->next(item);) {
    evaluation.step();
    total = apply(evaluation, Binary::add, total, getter(item));
  }
  return total;
}

class UniqueItems : public Iterator {
 public:
  UniqueItems(Evaluation& evaluation, Value source, Getter key)
      : evaluation_(evaluation), source_(std::move(source)), key_(std::move(key)) {}
  bool next(Value& item) override {
    if (!items_) items_ = iterate(source_);
    while (items_->next(item)) {
      evaluation_.step();
      Value key = key_(item);
      evaluation_.charge(key.extent().weight + sizeof(Dict::Entry));
      if (seen_.find(key) != nullptr) continue;
      seen_.set(std::move(key), Value());
      return true;
    }
    return false;
  }

 private:
  Evaluation& evaluation_;
  Value source_;
  Getter key_;
  std::unique_ptr<Iterator> items_;
  Dict seen_;
};

Value unique(Evaluation& evaluation, const Value& subject, Arguments& arguments) {
  const List bound = bind("unique", arguments, {"case_sensitive", "attribute"}, 0);
  Getter key = folded(attribute_getter(evaluation, bound[1]), flag(bound, 0));
  return make_generator(std::make_unique<UniqueItems>(evaluation, subject, std::move(key)),
                        subject);
}

constexpr NamedFilter kFilters[] = {
    {"sort", sort_filter}, {"dictsort", dictsort}, {"min", extreme<false>}, {"max", extreme<true>},
    {"groupby", groupby},  {"sum", sum},           {"unique", unique}};

}  // namespace

void sort_by(Evaluation& evaluation, List& items, bool reverse, const Getter& key) {
  std::vector<Keyed> keyed;
  keyed.reserve(items.size());
  for (Value& item : items) {
    evaluation.step();
    Value item_key = key(item);
    keyed.push_back({std::move(item_key), std::move(item)});
  }
  // Reversed before and after, equal items keep their order, as in Python.
  if (reverse) std::reverse(keyed.begin(), keyed.end());
  std::vector<Keyed> spare(keyed.size());
  merge_sort(evaluation, keyed, spare, 0, keyed.size());
  if (reverse) std::reverse(keyed.begin(), keyed.end());
  std::transform(keyed.begin(), keyed.end(), items.begin(),
                 [](Keyed& entry) { return std::move(entry.item); });
}

FilterTable order_filters() { return {kFilters, std::size(kFilters)}; }

}  // namespace quire::jinja
