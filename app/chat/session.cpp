#include "app/chat/session.h"

#include <fmt/format.h>

#include <chrono>
#include <optional>

#include "app/chat/events.h"
#include "base/error.h"

namespace quire {

namespace {

using Clock = std::chrono::steady_clock;

net::Patience patience() {
  net::Patience patience;
  patience.silence = std::chrono::minutes(10);  // a long prompt on a slow machine
  patience.stopped = [] { return ChatTerminal::is_interrupted(); };
  return patience;
}

// The events of one reply, shown as they come.
class Answer {
 public:
  Answer(ChatTerminal& terminal, bool show_reasoning)
      : terminal_(terminal), show_reasoning_(show_reasoning) {}

  bool take(const net::Response& head, std::string_view piece) {
    if (head.status != 200) {
      failure_ += piece;
      return failure_.size() < 64 * 1024;
    }
    if (!events_) {
      const bool is_stream = head.header("Content-Type").starts_with("text/event-stream");
      events_.emplace(is_stream);
    }
    add(events_->push(piece));
    return true;
  }

  void finish(const net::Response& head) {
    if (events_) add(events_->finish());
    if (head.status != 200) {
      error_ = fmt::format("HTTP {}: {}", head.status, error_message(failure_));
    } else if (!events_) {
      error_ = "the answer is empty";
    } else if (!events_->error().empty()) {
      error_ = events_->error();
    } else if (!events_->done()) {
      error_ = "the answer broke off";
    }
  }

  const std::string& error() const { return error_; }
  ChatMessage& message() { return message_; }
  const std::optional<ChatEvents>& events() const { return events_; }

  std::string figures(Clock::time_point begin) const {
    if (!first_ || !events_) return {};
    const auto seconds = [](Clock::duration d) { return std::chrono::duration<double>(d).count(); };
    std::string line = fmt::format("first token after {:.2f} s", seconds(*first_ - begin));
    const auto count = events_->completion_tokens();
    const double rest = seconds(Clock::now() - *first_);
    if (count && *count > 1 && rest > 0) {
      line = fmt::format("{} tokens, {:.1f} a second, {}", *count, (*count - 1) / rest, line);
    }
    if (events_->finish_reason() == "length") line += "; cut off at max_tokens or the context's end";
    return line;
  }

 private:
  void add(const ChatDelta& delta) {
    if (delta.reasoning.empty() && delta.content.empty()) return;
    if (!first_) first_ = Clock::now();
    message_.reasoning += delta.reasoning;
    message_.content += delta.content;
    if (show_reasoning_) terminal_.reasoning(delta.reasoning);
    terminal_.content(delta.content);
  }

  ChatTerminal& terminal_;
  bool show_reasoning_;
  std::optional<ChatEvents> events_;
  std::string failure_;
  std::string error_;
  std::optional<Clock::time_point> first_;
  ChatMessage message_{"assistant", {}, {}};
};

}  // namespace

ChatSession::ChatSession(ChatServerAddress server, ChatTerminal& terminal)
    : server_(std::move(server)), terminal_(terminal), client_(patience()) {}

net::Headers ChatSession::headers() const {
  net::Headers headers = {{"Accept", "text/event-stream, application/json"},
                          {"Content-Type", "application/json"},
                          {"User-Agent", "quire-chat"}};
  if (!server_.api_key.empty()) headers.emplace_back("Authorization", "Bearer " + server_.api_key);
  return headers;
}

std::vector<std::string> ChatSession::models() {
  const net::Request request{"GET", server_.base.with_path("/models"), headers(), {}};
  const net::Response reply = client_.send(request);
  if (reply.status != 200) {
    throw Failure(ErrorCode::unavailable, fmt::format("{}: HTTP {}: {}", request.url.text(),
                                                      reply.status, error_message(reply.body)));
  }
  boost::system::error_code wrong;
  const auto value = boost::json::parse(reply.body, wrong);
  const auto* const object = wrong ? nullptr : value.if_object();
  const auto* const data = object == nullptr ? nullptr : object->if_contains("data");
  if (data == nullptr || !data->is_array()) {
    throw Failure(ErrorCode::unavailable, request.url.text() + " is not a list of models");
  }
  std::vector<std::string> names;
  for (const auto& one : data->get_array()) {
    const auto* const model = one.if_object();
    const auto* const id = model == nullptr ? nullptr : model->if_contains("id");
    if (id != nullptr && id->is_string()) names.emplace_back(id->get_string());
  }
  return names;
}

bool ChatSession::ask(const std::string& question) {
  conversation_.messages.push_back({"user", question, {}});
  return answer();
}

bool ChatSession::answer() {
  const auto begin = Clock::now();
  Answer answer(terminal_, show_reasoning);
  std::string trouble;
  ChatTerminal::interrupted();
  try {
    const net::Request request{"POST", server_.base.with_path("/chat/completions"), headers(),
                               conversation_.request(true)};
    const net::Response head = client_.send(
        request, [&](const net::Response& r, std::string_view piece) { return answer.take(r, piece); });
    answer.finish(head);
    trouble = answer.error();
  } catch (const Failure& failure) {
    trouble = failure.error().code == ErrorCode::cancelled ? "stopped" : failure.what();
    ChatTerminal::interrupted();
  }
  terminal_.end_answer();
  ChatMessage& message = answer.message();
  if (answer.events()) {
    for (const auto& [index, call] : answer.events()->tool_calls()) {
      terminal_.call(call.name, call.arguments);
    }
  }
  if (!message.content.empty() || !message.reasoning.empty()) {
    conversation_.messages.push_back(std::move(message));
  } else if (!trouble.empty()) {
    conversation_.messages.pop_back();
  }
  if (trouble.empty()) {
    terminal_.note(answer.figures(begin));
    return true;
  }
  terminal_.error(trouble);
  return false;
}

}  // namespace quire
