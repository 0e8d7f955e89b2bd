#include "text/output/call_reader.h"

#include <algorithm>

namespace quire {
namespace {

using Kind = CallPart::Kind;

bool is_letter(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         static_cast<unsigned char>(c) >= 0x80 ||
         std::string_view("_-.:/").find(c) != std::string_view::npos;
}

}  // namespace

using Status = CallReader::Status;

CallReader::CallReader(const CallFormat& format, const ToolTypes& types, CallWriter& writer)
    : format_(format), types_(types), writer_(writer) {}

void CallReader::begin(int begin, OutputDelta& delta) {
  held_.clear();
  called_ = between_ = false;
  marked_ = begin != kNoMarker;
  std::string_view marker;
  if (marked_) {
    marker = without_space(format_.begin[std::size_t(begin)]);
    held_ = marker;
  }
  const bool is_call = format_.call.front().kind == Kind::literal &&
                       without_space(format_.call.front().text) == marker;
  if (is_call || without_space(format_.open).empty()) {
    begin_call(is_call ? 1 : 0, delta);
  } else {
    choose_row();
  }
}

void CallReader::begin_named(const std::string& name, OutputDelta& delta) {
  held_.clear();
  called_ = between_ = false;
  marked_ = true;
  begin_call(0, delta);
  name_ = name;
}

void CallReader::begin_call(std::size_t part, OutputDelta& delta) {
  between_ = given_ = any_parameter_ = false;
  call_begin_ = held_.size();
  name_.clear();
  id_.clear();
  enter(part, delta);
}

std::string_view CallReader::unread() const {
  if (given_ || between_) return {};
  const std::string_view held = held_;
  const bool is_only_separator = called_ && without_space(held.substr(call_begin_)).empty();
  return is_only_separator ? std::string_view() : held;
}

void CallReader::break_off(OutputDelta& delta) {
  if (given_ || between_) return;
  if (state_ == State::object && object_->has_name()) name_ = object_->name();
  if (!name_.empty()) give_name(delta);
}

Status CallReader::push(char c, OutputDelta& delta) {
  held_ += c;
  const Status status = step(c, delta);
  if (status == Status::left && !held_.empty()) held_.pop_back();
  const bool streams = state_ == State::json || state_ == State::value;
  if (status == Status::more && given_ && streams) held_.clear();
  return status;
}

Status CallReader::step(char c, OutputDelta& delta) {
  switch (state_) {
    case State::choice:
      return in_choice(c, delta);
    case State::word:
      return in_word(c, delta);
    case State::object:
      return in_object(c, delta);
    case State::json:
      return in_json(c, delta);
    case State::keywords:
      return in_keywords(c, delta);
    case State::key:
      return in_key(c, delta);
    case State::attribute:
      return in_attribute(c, delta);
    case State::value:
      return in_value(c, delta);
  }
  return Status::left;
}

void CallReader::enter(std::size_t part, OutputDelta& delta) {
  part_ = part;
  clear_choices();
  if (part == format_.call.size()) return end_call(delta);
  switch (format_.call[part].kind) {
    case Kind::literal:
      return choose_literals(part);
    case Kind::name:
    case Kind::id:
    case Kind::note:
    case Kind::number:
      state_ = State::word;
      word_.clear();
      return;
    case Kind::object:
      state_ = State::object;
      object_.emplace(format_.keys, !marked_);
      return;
    case Kind::json:
      state_ = State::json;
      json_ = JsonScanner();
      json_begun_ = false;
      return;
    case Kind::keywords:
      state_ = State::keywords;
      keywords_ = KeywordsReader();
      return;
    case Kind::parameters:
      choices_.push_back({without_space(format_.parameter.open), Next::parameter, 0});
      return choose_literals(part + 1);
  }
}

void CallReader::end_call(OutputDelta& delta) {
  const bool has_parameters =
      std::any_of(format_.call.begin(), format_.call.end(),
                  [](const CallPart& part) { return part.kind == Kind::parameters; });
  if (has_parameters) {
    give_name(delta);
    give(delta, any_parameter_ ? "}" : "{}");
  }
  given_ = false;
  called_ = between_ = true;
  held_.clear();
  choose_after_call();
}

Status CallReader::in_word(char c, OutputDelta& delta) {
  if (is_letter(c)) {
    word_ += c;
    return word_.size() <= kMaxName ? Status::more : Status::left;
  }
  if (word_.empty()) return is_space(c) ? Status::more : Status::left;
  const Kind kind = format_.call[part_].kind;
  if (kind == Kind::id) id_ = word_;
  if (kind == Kind::name) {
    if (format_.ids == CallIds::written) id_ = word_;
    name_ = word_;
    if (name_.starts_with(format_.name_prefix)) name_.erase(0, format_.name_prefix.size());
    const std::size_t colon = name_.rfind(':');
    if (format_.name_index && colon != name_.npos &&
        name_.find_first_not_of("0123456789", colon + 1) == name_.npos) {
      name_.erase(colon);
    }
    if (name_.empty()) return Status::left;
  }
  enter(part_ + 1, delta);
  return step(c, delta);
}

Status CallReader::in_object(char c, OutputDelta& delta) {
  const ObjectReader::Status status = object_->push(c);
  if (status == ObjectReader::Status::broken) return Status::left;
  if (object_->ready()) {
    name_ = object_->name();
    give_name(delta);
    give(delta, object_->take_arguments());
  }
  if (status == ObjectReader::Status::done) enter(part_ + 1, delta);
  return Status::more;
}

Status CallReader::in_json(char c, OutputDelta& delta) {
  if (!json_begun_) {
    if (is_space(c)) return Status::more;
    if (c != '{') return Status::left;
    json_begun_ = true;
  }
  const JsonScanner::Status status = json_.push(c);
  if (status == JsonScanner::Status::broken) return Status::left;
  give_name(delta);
  give(delta, std::string_view(&c, 1));
  if (status == JsonScanner::Status::done) enter(part_ + 1, delta);
  return Status::more;
}

Status CallReader::in_keywords(char c, OutputDelta& delta) {
  std::string json;
  const KeywordsReader::Status status = keywords_.push(c, json);
  if (status == KeywordsReader::Status::broken) return Status::left;
  if (!json.empty()) {
    const std::string unwritten = held_.substr(held_.size() - std::min(keywords_.unwritten(), held_.size()));
    give_name(delta);
    give(delta, json);
    held_ = unwritten;
  }
  if (status == KeywordsReader::Status::done) enter(part_ + 1, delta);
  return Status::more;
}

void CallReader::give_name(OutputDelta& delta) {
  if (given_) return;
  writer_.begin(delta, format_.ids, id_, name_);
  given_ = true;
  held_.clear();
}

void CallReader::give(OutputDelta& delta, std::string_view arguments) {
  if (arguments.empty()) return;
  writer_.add(delta, arguments);
  held_.clear();
}

}  // namespace quire
