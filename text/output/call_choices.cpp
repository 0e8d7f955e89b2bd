// Which literals may come next in a row of calls.

#include <algorithm>

#include "text/output/call_reader.h"

namespace quire {

using Kind = CallPart::Kind;
using Status = CallReader::Status;

void CallReader::clear_choices() {
  state_ = State::choice;
  choices_.clear();
  matched_ = 0;
  fallback_.reset();
}

void CallReader::choose_row() {
  clear_choices();
  choices_.push_back({without_space(format_.open), Next::call, 0});
}

void CallReader::add_begins() {
  for (std::size_t i = 0; i < format_.begin.size(); ++i) {
    choices_.push_back({without_space(format_.begin[i]), Next::row, i});
  }
}

void CallReader::add_ends() {
  for (const auto& end : format_.end) choices_.push_back({without_space(end), Next::over, 0});
}

// A separator, what closes the row, or, where calls simply follow each other, the next one.
void CallReader::choose_after_call() {
  clear_choices();
  const std::string_view separator = without_space(format_.separator);
  const std::string_view close = without_space(format_.close);
  if (!separator.empty()) choices_.push_back({separator, Next::call, 0});
  if (!close.empty()) {
    choices_.push_back({close, Next::close, 0});
    return;
  }
  add_ends();
  add_begins();
  const CallPart& first = format_.call.front();
  if (first.kind == Kind::literal) {
    choices_.push_back({without_space(first.text), Next::call, 1});
  } else if (separator.empty() && !format_.end.empty() && first.kind != Kind::json) {
    fallback_ = 0;
  }
}

// False: nothing ends the row, so it is over.
bool CallReader::choose_end() {
  if (format_.end.empty()) return false;
  clear_choices();
  add_ends();
  add_begins();
  return true;
}

// The literal that part is, those that may come instead of an optional one, and where all are
// optional what comes after them.
void CallReader::choose_literals(std::size_t part) {
  const auto& parts = format_.call;
  while (part < parts.size() && parts[part].kind == Kind::literal) {
    choices_.push_back({without_space(parts[part].text), Next::part, part + 1});
    if (parts[part].optional == 0) return;
    part += std::size_t(parts[part].optional);
  }
  fallback_ = part;
}

bool CallReader::accepts_fallback(char c) const {
  if (*fallback_ >= format_.call.size()) return false;
  const Kind kind = format_.call[*fallback_].kind;
  if (kind == Kind::object || kind == Kind::json) return c == '{';
  const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  return kind == Kind::name && is_letter;
}

Status CallReader::in_choice(char c, OutputDelta& delta) {
  if (matched_ == 0 && is_space(c)) return Status::more;
  const auto continues = [&](const Choice& choice) { return choice.literal[matched_] == c; };
  if (std::none_of(choices_.begin(), choices_.end(), continues)) {
    if (matched_ > 0 || !fallback_ || !accepts_fallback(c)) return Status::left;
    if (between_) {
      begin_call(*fallback_, delta);
    } else {
      enter(*fallback_, delta);
    }
    return step(c, delta);
  }
  std::erase_if(choices_, [&](const Choice& choice) { return !continues(choice); });
  ++matched_;
  for (const Choice& choice : choices_) {
    if (choice.literal.size() == matched_) return follow(Choice(choice), delta);
  }
  return Status::more;
}

Status CallReader::follow(const Choice& choice, OutputDelta& delta) {
  matched_ = 0;
  switch (choice.next) {
    case Next::row:
      begin(static_cast<int>(choice.part), delta);
      called_ = true;
      return Status::more;
    case Next::call:
      begin_call(choice.part, delta);
      return Status::more;
    case Next::part:
      enter(choice.part, delta);
      return Status::more;
    case Next::parameter:
      state_ = State::key;
      key_.clear();
      return Status::more;
    case Next::value:
      begin_value(delta);
      return Status::more;
    case Next::close:
      return choose_end() ? Status::more : Status::ended;
    case Next::over:
      return Status::ended;
  }
  return Status::left;
}

}  // namespace quire
