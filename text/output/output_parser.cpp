#include "text/output/output_parser.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "text/output/call_reader.h"
#include "text/output/channel_header.h"
#include "text/output/trimmed_text.h"

namespace quire {
namespace {

enum class Mode : std::uint8_t {
  opening,  // the answer's beginning, which may open the reasoning
  reasoning,
  content,
  calls,
  header,   // of a message with channels
  message,  // of such a message: its text
};

// Those that begin calls come first.
std::vector<std::string> content_markers(const OutputFormat& format) {
  std::vector<std::string> markers;
  const auto add = [&markers](const std::vector<std::string>& more) {
    for (const auto& marker : more) markers.emplace_back(without_space(marker));
  };
  if (format.dialect != nullptr && format.calls) add(format.dialect->calls.begin);
  if (format.dialect != nullptr) add(format.dialect->wrappers);
  if (format.reasoning != nullptr) add(format.reasoning->wrappers);
  return markers;
}

const ToolTypes& no_types() {
  static const ToolTypes kNone;
  return kNone;
}

}  // namespace

struct OutputParser::State {
  explicit State(OutputFormat of);

  void feed(char c);
  bool step(char c);  // false: the byte is to be read again in the new mode
  bool open(char c);
  bool think(char c);
  bool read_content(char c);
  bool read_calls(char c);
  bool read_header(char c);
  bool read_message(char c);
  void begin_message();
  void reread(std::string text);
  void give_back(std::string_view text);
  void finish();

  OutputFormat format;
  bool channels;
  bool has_calls;
  Mode mode = Mode::content;
  OutputDelta delta;
  CallWriter writer;
  std::optional<CallReader> calls;
  TrimmedText content{false};
  TrimmedText reasoning{true};
  std::string held, opening;  // white space at the beginning, and what may open the reasoning
  MarkerFinder marks;         // in content or in reasoning
  MarkerFinder message_end;
  ChannelHeader header;
  ChannelHeader::Kind message = ChannelHeader::Kind::content;
  std::uint64_t work = 0;
};

OutputParser::State::State(OutputFormat of)
    : format(std::move(of)),
      channels((format.dialect && format.dialect->channels) ||
               (format.reasoning && format.reasoning->channels)),
      has_calls(format.dialect != nullptr && format.calls),
      marks(content_markers(format)),
      message_end({"<|end|>", "<|return|>", "<|call|>", "<|start|>"}) {
  if (has_calls) {
    calls.emplace(format.dialect->calls, format.types ? *format.types : no_types(), writer);
  }
  if (channels) {
    mode = Mode::header;
  } else if (format.reasoning != nullptr && (format.may_think || format.starts_inside)) {
    mode = Mode::opening;
  }
}

void OutputParser::State::feed(char c) {
  do {
    ++work;
  } while (!step(c));
}

bool OutputParser::State::step(char c) {
  switch (mode) {
    case Mode::opening:
      return open(c);
    case Mode::reasoning:
      return think(c);
    case Mode::content:
      return read_content(c);
    case Mode::calls:
      return read_calls(c);
    case Mode::header:
      return read_header(c);
    case Mode::message:
      return read_message(c);
  }
  return true;
}

// The text in the mode that has just been entered.
void OutputParser::State::reread(std::string text) {
  for (const char c : text) feed(c);
}

bool OutputParser::State::open(char c) {
  if (opening.empty() && is_space(c)) {
    held += c;
    return true;
  }
  opening += c;
  bool may_come = false;
  for (const auto& marker : format.reasoning->open) {
    may_come = may_come || marker.starts_with(opening);
    if (marker != opening) continue;
    held.clear();
    mode = Mode::reasoning;
    content.mark();
    marks = MarkerFinder(format.reasoning->close);
    return true;
  }
  if (may_come) return true;
  if (format.starts_inside) {
    content.mark();
    marks = MarkerFinder(format.reasoning->close);
  }
  mode = format.starts_inside ? Mode::reasoning : Mode::content;
  reread(std::exchange(held, {}) + opening);
  return true;
}

bool OutputParser::State::think(char c) {
  std::string text;
  const bool ends = marks.push(c, text) >= 0;
  reasoning.add(text, delta.reasoning);
  if (!ends) return true;
  reasoning.mark();
  marks = MarkerFinder(content_markers(format));
  mode = Mode::content;
  return true;
}

bool OutputParser::State::read_content(char c) {
  const bool may_start = has_calls && format.dialect->calls.starts_answer && !content.begun() &&
                         marks.held().empty() && (c == '[' || c == '{');
  if (may_start) {
    calls->begin(CallReader::kNoMarker, delta);
    mode = Mode::calls;
    if (calls->push(c, delta) == CallReader::Status::more) return true;
    mode = Mode::content;
  }
  std::string text;
  const int marker = marks.push(c, text);
  content.add(text, delta.content);
  if (marker < 0) return true;
  if (has_calls && std::size_t(marker) < format.dialect->calls.begin.size()) {
    calls->begin(marker, delta);
    mode = Mode::calls;
  } else {
    content.mark();  // around an answer
  }
  return true;
}

bool OutputParser::State::read_calls(char c) {
  const int before = writer.num_calls();
  const CallReader::Status status = calls->push(c, delta);
  if (writer.num_calls() > before) content.mark();
  if (status == CallReader::Status::more) return true;
  if (status == CallReader::Status::ended) {
    content.mark();
    mode = Mode::content;
    if (channels) begin_message();
    return true;
  }
  const std::string held_back = calls->held();
  const std::size_t certain = held_back.size() - std::min(calls->reread(), held_back.size());
  mode = channels ? Mode::message : Mode::content;
  message = ChannelHeader::Kind::broken_call;
  content.add(std::string_view(held_back).substr(0, certain), delta.content);
  reread(held_back.substr(certain));
  return false;
}

void OutputParser::State::begin_message() {
  header = ChannelHeader();
  mode = Mode::header;
}

bool OutputParser::State::read_header(char c) {
  switch (header.push(c)) {
    case ChannelHeader::Status::more:
      return true;
    case ChannelHeader::Status::none:
      message = ChannelHeader::Kind::content;
      mode = Mode::message;
      // Once it had begun as one it is text as a whole; else its end may begin a marker.
      if (header.begun()) {
        content.add(header.text(), delta.content);
      } else {
        reread(header.text());
      }
      return true;
    case ChannelHeader::Status::done:
      break;
  }
  message = header.kind();
  mode = Mode::message;
  content.mark();
  reasoning.mark();
  if (message == ChannelHeader::Kind::call) {
    if (has_calls) {
      calls->begin_named(header.function(), delta);
      mode = Mode::calls;
    } else {
      message = ChannelHeader::Kind::content;
    }
  }
  return true;
}

bool OutputParser::State::read_message(char c) {
  std::string text;
  const int end = message_end.push(c, text);
  // What follows a call that broke is given back to the letter.
  if (end >= 0 && message == ChannelHeader::Kind::broken_call) text += message_end.marker(end);
  if (message == ChannelHeader::Kind::reasoning) {
    reasoning.add(text, delta.reasoning);
  } else {
    content.add(text, delta.content);
  }
  if (end < 0) return true;
  const bool is_start = message_end.marker(end) == "<|start|>";
  if (message != ChannelHeader::Kind::broken_call) content.mark(), reasoning.mark();
  begin_message();
  if (is_start && message != ChannelHeader::Kind::broken_call) reread("<|start|>");
  return true;
}

void OutputParser::State::finish() {
  switch (mode) {
    case Mode::opening: {
      if (format.only_calls && !format.starts_inside) break;
      TrimmedText& text = format.starts_inside ? reasoning : content;
      text.add(held + opening, format.starts_inside ? delta.reasoning : delta.content);
      break;
    }
    case Mode::reasoning:
      reasoning.add(marks.take_held(), delta.reasoning);
      break;
    case Mode::content:
      if (!format.only_calls) content.add(marks.take_held(), delta.content);
      break;
    case Mode::calls:
      if (format.only_calls) {
        calls->break_off(delta);
      } else {
        content.add(calls->unread(), delta.content);
      }
      break;
    case Mode::header:
      if (!header.is_markup()) content.add(header.text(), delta.content);
      break;
    case Mode::message:
      if (message == ChannelHeader::Kind::reasoning) {
        reasoning.add(message_end.take_held(), delta.reasoning);
      } else {
        content.add(message_end.take_held(), delta.content);
      }
      break;
  }
  content.finish(delta.content);
}

OutputParser::OutputParser(OutputFormat format)
    : state_(std::make_unique<State>(std::move(format))) {}
OutputParser::OutputParser(OutputParser&&) noexcept = default;
OutputParser& OutputParser::operator=(OutputParser&&) noexcept = default;
OutputParser::~OutputParser() = default;

OutputDelta OutputParser::push(std::string_view text) {
  for (const char c : text) state_->feed(c);
  return std::exchange(state_->delta, {});
}

OutputDelta OutputParser::finish() {
  state_->finish();
  return std::exchange(state_->delta, {});
}

int OutputParser::num_tool_calls() const { return state_->writer.num_calls(); }

std::uint64_t OutputParser::work() const { return state_->work; }

bool OutputParser::in_reasoning() const {
  switch (state_->mode) {
    case Mode::opening:
      return state_->format.starts_inside;
    case Mode::reasoning:
      return true;
    case Mode::message:
      return state_->message == ChannelHeader::Kind::reasoning;
    default:
      return false;
  }
}

}  // namespace quire
