#include "text/output/reasoning_parser.h"

#include "text/tokenizer/markers.h"

namespace quire {
namespace {

constexpr std::string_view kOpen = "<think>";
constexpr std::string_view kClose = "</think>";

}  // namespace

bool ReasoningParser::look_for_opening() {
  const std::string_view rest = std::string_view(pending_).substr(leading_space(pending_));
  if (rest.size() < kOpen.size() && kOpen.starts_with(rest)) return false;
  if (rest.starts_with(kOpen)) {
    pending_ = rest.substr(kOpen.size());
    state_ = State::opened;
  } else if (starts_inside_) {
    pending_ = std::string(rest);
    state_ = State::inside;
  } else {
    state_ = State::content;
  }
  return true;
}

bool ReasoningParser::skip_space(State next) {
  pending_.erase(0, leading_space(pending_));
  if (pending_.empty()) return false;
  state_ = next;
  return true;
}

bool ReasoningParser::read_reasoning(Delta& delta) {
  const std::size_t close = pending_.find(kClose);
  const std::size_t end = close == pending_.npos ? partial_marker(pending_, kClose) : close;
  const std::size_t given = trimmed_size(std::string_view(pending_).substr(0, end));
  delta.reasoning.append(pending_, 0, given);
  if (close == pending_.npos) {
    pending_.erase(0, given);
    return false;
  }
  pending_.erase(0, close + kClose.size());
  state_ = State::closed;
  return true;
}

bool ReasoningParser::advance(Delta& delta) {
  switch (state_) {
    case State::before:
      return look_for_opening();
    case State::opened:
      return skip_space(State::inside);
    case State::inside:
      return read_reasoning(delta);
    case State::closed:
      return skip_space(State::content);
    case State::content:
      break;
  }
  delta.content += pending_;
  pending_.clear();
  return false;
}

ReasoningParser::Delta ReasoningParser::push(std::string_view text) {
  pending_ += text;
  Delta delta;
  while (advance(delta)) {
  }
  return delta;
}

ReasoningParser::Delta ReasoningParser::finish() {
  Delta delta;
  const bool is_reasoning = state_ == State::inside || (state_ == State::before && starts_inside_);
  (is_reasoning ? delta.reasoning : delta.content) = std::move(pending_);
  pending_.clear();
  return delta;
}

}  // namespace quire
