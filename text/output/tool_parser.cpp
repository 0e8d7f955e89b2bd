#include "text/output/tool_parser.h"

#include "text/tokenizer/markers.h"

namespace quire {
namespace {

constexpr std::string_view kOpen = "<tool_call>";
constexpr std::string_view kClose = "</tool_call>";

}  // namespace

void ToolParser::push(std::string_view text, OutputDelta& delta) {
  pending_ += text;
  bool more = true;
  while (more) {
    switch (state_) {
      case State::content:
        more = read_content(delta);
        break;
      case State::call:
        more = read_call(delta);
        break;
      case State::closing:
        more = read_closing();
        break;
    }
  }
}

// White space is held until it is known what comes after it: before or after a call it is nobody's.
void ToolParser::add_content(OutputDelta& delta, std::string_view text) {
  const std::size_t end = trimmed_size(text);
  const std::size_t begin = std::min(leading_space(text), end);
  if (end == 0) {
    space_ += text;
    return;
  }
  space_ += text.substr(0, begin);
  if (has_content_ || num_calls_ == 0) delta.content += space_;
  delta.content += text.substr(begin, end - begin);
  has_content_ = true;
  space_ = text.substr(end);
}

bool ToolParser::read_content(OutputDelta& delta) {
  const std::size_t open = pending_.find(kOpen);
  const std::size_t end = open == pending_.npos ? partial_marker(pending_, kOpen) : open;
  add_content(delta, std::string_view(pending_).substr(0, end));
  pending_.erase(0, open == pending_.npos ? end : open + kOpen.size());
  if (open == std::string::npos) return false;
  begin_call();
  return true;
}

void ToolParser::begin_call() {
  state_ = State::call;
  scanner_ = ToolCallScanner();
  started_ = false;
  given_bytes_ = 0;
}

std::string ToolParser::new_id() {
  if (!random_) random_.emplace(std::random_device{}());
  std::string id = "chatcmpl-tool-";
  for (int i = 0; i < 32; ++i) id += "0123456789abcdef"[(*random_)() & 15];
  return id;
}

void ToolParser::give_name(OutputDelta& delta, std::string name) {
  delta.tool_calls.push_back({num_calls_++, new_id(), std::move(name), ""});
  started_ = true;
}

void ToolParser::give_arguments(OutputDelta& delta, std::string_view all) {
  if (all.size() == given_bytes_) return;
  const int index = num_calls_ - 1;
  if (delta.tool_calls.empty() || delta.tool_calls.back().index != index) {
    delta.tool_calls.push_back({index, {}, {}, ""});
  }
  delta.tool_calls.back().arguments += all.substr(given_bytes_);
  given_bytes_ = all.size();
}

// Arguments as far as they are written, once the name is known.
void ToolParser::give_progress(OutputDelta& delta) {
  if (whole_calls_ || scanner_.arguments_so_far().empty()) return;
  if (!started_) {
    auto name = scanner_.name();
    if (!name) return;
    give_name(delta, *std::move(name));
  }
  give_arguments(delta, scanner_.arguments_so_far());
}

// What was taken for a call and is none.
void ToolParser::give_back(OutputDelta& delta) {
  if (!started_) add_content(delta, std::string(kOpen) + scanner_.text());
}

void ToolParser::complete_call(OutputDelta& delta) {
  if (!started_) {
    auto name = scanner_.name();
    if (!name) {
      give_back(delta);
      state_ = State::content;
      return;
    }
    give_name(delta, *std::move(name));
  }
  give_arguments(delta, scanner_.arguments());
  state_ = State::closing;
}

bool ToolParser::read_call(OutputDelta& delta) {
  for (std::size_t i = 0; i < pending_.size(); ++i) {
    const ToolCallScanner::Status status = scanner_.push(pending_[i]);
    if (status == ToolCallScanner::Status::incomplete) continue;
    const bool complete = status == ToolCallScanner::Status::complete;
    give_progress(delta);
    pending_.erase(0, i + complete);
    if (complete) {
      complete_call(delta);
    } else {
      give_back(delta);
      state_ = started_ ? State::closing : State::content;
    }
    return true;
  }
  pending_.clear();
  give_progress(delta);
  return false;
}

// </tool_call>, which a model may also leave out.
bool ToolParser::read_closing() {
  const std::string_view rest = std::string_view(pending_).substr(leading_space(pending_));
  if (rest.size() < kClose.size() && kClose.starts_with(rest)) return false;
  if (rest.starts_with(kClose)) pending_ = std::string(rest.substr(kClose.size()));
  state_ = State::content;
  return true;
}

void ToolParser::finish(OutputDelta& delta) {
  if (state_ == State::call) give_back(delta);
  if (state_ == State::content) add_content(delta, pending_);
  pending_.clear();
  state_ = State::content;
  if (num_calls_ == 0) delta.content += space_;
  space_.clear();
}

}  // namespace quire
