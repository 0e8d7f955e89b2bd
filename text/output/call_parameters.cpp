// Arguments that come one by one.

#include "text/output/call_reader.h"

namespace quire {

using Status = CallReader::Status;

Status CallReader::in_key(char c, OutputDelta& delta) {
  const ParameterFormat& format = format_.parameter;
  key_ += c;
  if (!key_.ends_with(format.key_end)) {
    return c == '\n' || key_.size() > kMaxName ? Status::left : Status::more;
  }
  key_.resize(key_.size() - format.key_end.size());
  attribute_.clear();
  if (!format.attribute_end.empty()) {
    state_ = State::attribute;
  } else if (!format.value_begin.empty()) {
    clear_choices();
    choices_.push_back({without_space(format.value_begin), Next::value, 0});
  } else {
    begin_value(delta);
  }
  return Status::more;
}

Status CallReader::in_attribute(char c, OutputDelta& delta) {
  const std::string& end = format_.parameter.attribute_end;
  attribute_ += c;
  if (!attribute_.ends_with(end)) {
    return c == '\n' || attribute_.size() > kMaxName ? Status::left : Status::more;
  }
  attribute_.resize(attribute_.size() - end.size());
  begin_value(delta);
  return Status::more;
}

void CallReader::begin_value(OutputDelta& delta) {
  state_ = State::value;
  value_.clear();
  value_begun_ = line_break_held_ = false;
  value_end_ = MarkerFinder({std::string(without_space(format_.parameter.close))});
  value_types_ = types_.of(name_, key_);
  if (!format_.parameter.attribute_end.empty()) {
    value_types_ = attribute_ == (format_.parameter.attribute_is_type ? "string" : "true") ? JsonTypes{} : JsonTypes::all_but_string();
  }
  std::string json = any_parameter_ ? ", " : "{";
  append_json_string(json, key_);
  json += value_types_.only_string() ? ": \"" : ": ";
  any_parameter_ = true;
  give_name(delta);
  give(delta, json);
}

Status CallReader::in_value(char c, OutputDelta& delta) {
  std::string text;
  const bool ends = value_end_.push(c, text) >= 0;
  if (!text.empty()) add_value_text(text, delta);
  if (ends) {
    give(delta, value_types_.only_string() ? "\"" : typed_value(value_, value_types_));
    enter(part_, delta);
  }
  return Status::more;
}

void CallReader::add_value_text(std::string_view text, OutputDelta& delta) {
  std::string json;
  std::string& out = value_types_.only_string() ? json : value_;
  const auto add = [&](char c) {
    value_types_.only_string() ? append_json_byte(out, c) : out.push_back(c);
  };
  for (const char c : text) {
    const bool is_first = !std::exchange(value_begun_, true);
    if (format_.parameter.own_lines && c == '\n') {
      if (is_first) continue;
      if (std::exchange(line_break_held_, true)) add('\n');
      continue;
    }
    if (std::exchange(line_break_held_, false)) add('\n');
    add(c);
  }
  give(delta, json);
}

}  // namespace quire
