#include "engine/structured/thinking_budget.h"

#include <algorithm>
#include <boost/json.hpp>
#include <limits>
#include <stdexcept>

#include "engine/structured/grammar_error.h"

namespace quire::structured {
namespace {

namespace json = boost::json;

// Of `text`'s end, as much as one of the marks may begin with.
std::string_view possible_mark(std::string_view text, const std::vector<std::string>& marks) {
  for (std::size_t from = 0; from < text.size(); ++from) {
    const std::string_view rest = text.substr(from);
    if (std::ranges::any_of(marks, [&](const auto& mark) { return mark.starts_with(rest); })) {
      return rest;
    }
  }
  return {};
}

}  // namespace

std::unique_ptr<const ThoughtMarks> thought_marks(const std::string& structural_tag) {
  if (structural_tag.find("\"thinking\"") == std::string::npos) return nullptr;
  boost::system::error_code error;
  json::parse_options options;
  options.max_depth = 500;
  const json::value document = json::parse(structural_tag, error, {}, options);
  const auto* thinking =
      !error && document.is_object() ? document.get_object().if_contains("thinking") : nullptr;
  if (thinking == nullptr) return nullptr;
  try {
    const json::object& object = thinking->as_object();
    auto marks = std::make_unique<ThoughtMarks>();
    marks->budget = object.at("budget").to_number<int>();
    for (const json::value& open : object.at("open").as_array()) {
      marks->open.emplace_back(open.as_string());
    }
    for (const json::value& close : object.at("close").as_array()) {
      marks->close.emplace_back(close.as_string());
    }
    if (marks->close.empty()) throw std::invalid_argument("no mark");
    marks->starts_inside = object.at("inside").as_bool();
    marks->several = object.at("several").as_bool();
    return marks;
  } catch (const std::exception&) {
    throw GrammarFailure(GrammarErrorKind::syntax, "\"thinking\" is malformed", "/thinking");
  }
}

ForcedClose::ForcedClose(ThoughtMarks marks, std::shared_ptr<const Vocabulary> vocabulary)
    : marks_(std::move(marks)),
      vocabulary_(std::move(vocabulary)),
      next_(marks_.close.front().size(), -1) {
  const std::string_view close = marks_.close.front();
  std::vector<std::size_t> longest(close.size());
  for (TokenId id = 0; id < vocabulary_->size(); ++id) {
    std::string_view bytes = vocabulary_->bytes(id);
    if (vocabulary_->is_special(id)) bytes.remove_prefix(1);
    if (bytes.empty()) continue;
    for (std::size_t at = 0; at < next_.size(); ++at) {
      if (bytes.size() <= longest[at] || !close.substr(at).starts_with(bytes)) continue;
      longest[at] = bytes.size();
      next_[at] = id;
    }
  }
}

ThinkingBudget::ThinkingBudget(std::shared_ptr<const ForcedClose> forced)
    : forced_(std::move(forced)) {
  if (forced_->marks().starts_inside) state_.where = Where::inside;
}

void ThinkingBudget::read(State& state, std::string_view text) const {
  const ThoughtMarks& marks = forced_->marks();
  for (const char c : text) {
    state.tail += c;
    if (state.where == Where::inside) {
      if (std::ranges::find(marks.close, state.tail) != marks.close.end()) {
        state.tail.clear();
        state.where = marks.several ? Where::before : Where::after;
      } else {
        state.tail = possible_mark(state.tail, marks.close);
      }
      continue;
    }
    if (std::ranges::find(marks.open, state.tail) != marks.open.end()) {
      state.tail.clear();
      state.where = Where::inside;
      continue;
    }
    const bool is_blank = c == ' ' || c == '\n' || c == '\t' || c == '\r';
    std::string possible(possible_mark(state.tail, marks.open));
    const bool is_answer = !marks.several && possible.size() < state.tail.size() && !is_blank;
    state.tail = std::move(possible);
    if (is_answer) state.where = Where::after;
    if (is_answer) return;
  }
}

void ThinkingBudget::accept(TokenId token) {
  history_.push_back(state_);
  if (state_.where == Where::after) return;
  const Vocabulary& vocabulary = forced_->vocabulary();
  std::string_view bytes = vocabulary.bytes(token);
  if (vocabulary.is_special(token)) bytes.remove_prefix(1);
  const bool counts = state_.where == Where::inside;
  read(state_, bytes);
  if (counts && state_.where == Where::inside && state_.tokens < std::numeric_limits<int>::max()) {
    ++state_.tokens;
  }
}

void ThinkingBudget::rollback(std::size_t tokens) {
  if (tokens == 0) return;
  state_ = history_[history_.size() - tokens];
  history_.resize(history_.size() - tokens);
}

TokenId ThinkingBudget::forced() const {
  if (state_.where != Where::inside || state_.tokens < forced_->marks().budget) return -1;
  const std::string& close = forced_->marks().close.front();
  const std::string_view begun = possible_mark(state_.tail, {close});
  return forced_->next(begun.size());
}

}  // namespace quire::structured
