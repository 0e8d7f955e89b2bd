#include "server/responses/response_sinks.h"

#include <boost/asio/awaitable.hpp>
#include <ctime>
#include <utility>

#include "openapi/json_writer.h"
#include "server/http/error_reply.h"

namespace quire {

using openapi::JsonWriter;
using openapi::ResponseItem;
using Kind = ResponseItem::Kind;

void ResponseRun::complete(const std::vector<Choice>& choices,
                           const std::vector<ResponseItem>& items, bool whole) {
  object.output = items;
  object.status = whole ? "completed" : "incomplete";
  object.usage = usage_of(choices, defaults);
  if (whole) object.completed = std::time(nullptr);
  if (on_complete) on_complete(object);
}

ResponseStream::ResponseStream(Exchange& exchange, const std::vector<Choice>& choices,
                               ResponseRun& run)
    : EventSink(exchange),
      choices_(choices),
      run_(run),
      items_(run.request_id, run.request, this) {}

std::string& ResponseStream::begin(std::string_view type) {
  std::string& out = sse().begin_event(type);
  out.append("{\"type\":\"").append(type).append("\",\"sequence_number\":");
  openapi::append_json_int(out, sequence_++);
  return out;
}

std::string& ResponseStream::begin(std::string_view type, std::size_t index) {
  std::string& out = begin(type);
  out += ",\"output_index\":";
  openapi::append_json_int(out, static_cast<std::int64_t>(index));
  return out;
}

std::string& ResponseStream::begin(std::string_view type, std::size_t index,
                                   const ResponseItem& item) {
  std::string& out = begin(type, index);
  out += ",\"item_id\":";
  openapi::append_json_string(out, item.id);
  return out;
}

void ResponseStream::end(std::string& out) {
  out += '}';
  sse().end_event();
}

void ResponseStream::write_state(std::string_view type) {
  std::string& out = begin(type);
  out += ",\"response\":";
  openapi::append_response(out, run_.request, run_.object);
  end(out);
}

void ResponseStream::write_item(std::string_view type, std::size_t index,
                                const ResponseItem& item) {
  std::string& out = begin(type, index);
  out += ",\"item\":";
  openapi::append_response_item(out, item);
  end(out);
}

void ResponseStream::write_part(std::string_view type, std::size_t index,
                                const ResponseItem& item) {
  std::string& out = begin(type, index, item);
  out += ",\"content_index\":0,\"part\":";
  openapi::append_response_part(out, item);
  end(out);
}

void ResponseStream::on_added(std::size_t index, const ResponseItem& item) {
  write_item("response.output_item.added", index, item);
  if (!item.is_call()) write_part("response.content_part.added", index, item);
}

void ResponseStream::on_text(std::size_t index, const ResponseItem& item, std::string_view piece,
                             const std::vector<openapi::TokenLogprob>& logprobs) {
  const bool is_thought = item.kind == Kind::reasoning;
  std::string& out = begin(
      is_thought ? "response.reasoning_text.delta" : "response.output_text.delta", index, item);
  out += ",\"content_index\":0,\"delta\":";
  openapi::append_json_string(out, piece);
  if (!is_thought) {
    out += ",\"logprobs\":";
    openapi::append_response_logprobs(out, logprobs);
  }
  end(out);
}

// A custom tool's text is known when its arguments are whole.
void ResponseStream::on_arguments(std::size_t index, const ResponseItem& item,
                                  std::string_view piece) {
  if (item.kind == Kind::function_call)
    write_words("response.function_call_arguments.delta", index, item, "delta", piece);
}

void ResponseStream::write_words(std::string_view type, std::size_t index, const ResponseItem& item,
                                 std::string_view member, std::string_view words) {
  std::string& out = begin(type, index, item);
  out.append(",\"").append(member).append("\":");
  openapi::append_json_string(out, words);
  end(out);
}

void ResponseStream::on_done(std::size_t index, const ResponseItem& item) {
  if (item.kind == Kind::custom_tool_call) {
    const std::string text = openapi::text_of_arguments(item.arguments);
    write_words("response.custom_tool_call_input.delta", index, item, "delta", text);
    write_words("response.custom_tool_call_input.done", index, item, "input", text);
  } else if (item.kind == Kind::function_call) {
    std::string& out = begin("response.function_call_arguments.done", index, item);
    out += ",\"name\":";
    openapi::append_json_string(out, item.name);
    out += ",\"arguments\":";
    openapi::append_json_string(out, item.arguments);
    end(out);
  } else {
    const bool is_thought = item.kind == Kind::reasoning;
    std::string& out = begin(
        is_thought ? "response.reasoning_text.done" : "response.output_text.done", index, item);
    out += ",\"content_index\":0,\"text\":";
    openapi::append_json_string(out, item.text);
    if (!is_thought) {
      out += ",\"logprobs\":";
      openapi::append_response_logprobs(out, item.logprobs);
    }
    end(out);
    write_part("response.content_part.done", index, item);
  }
  write_item("response.output_item.done", index, item);
}

awaitable<bool> ResponseStream::on_delta(Choice&, ChoiceDelta delta) {
  if (refused()) co_return false;
  const bool first = !has_begun();
  if (first) {
    write_state("response.created");
    write_state("response.in_progress");
  }
  const std::string reason = delta.finish_reason;
  const bool says_something = first || !reason.empty() || !delta.text.empty();
  items_.push(std::move(delta));
  if (!reason.empty()) {
    const bool whole = reason != "length";
    items_.finish(whole);
    run_.complete(choices_, items_.items(), whole);
    write_state(whole ? "response.completed" : "response.incomplete");
  }
  if (!says_something) co_return true;
  co_return co_await sse().flush();
}

void ResponseStream::write_error(const Error& error) {
  items_.finish(false);
  run_.object.output = items_.items();
  run_.object.status = "failed";
  run_.object.error = error.detail;
  write_state("response.failed");
}

awaitable<void> ResponseStream::write_end() { co_await sse().end(); }

ResponseCollector::ResponseCollector(const std::vector<Choice>& choices, ResponseRun& run)
    : choices_(choices), run_(run), items_(run.request_id, run.request, nullptr) {}

awaitable<bool> ResponseCollector::on_delta(Choice&, ChoiceDelta delta) {
  const std::string reason = delta.finish_reason;
  items_.push(std::move(delta));
  if (reason.empty()) co_return true;
  items_.finish(reason != "length");
  run_.complete(choices_, items_.items(), reason != "length");
  co_return true;
}

void ResponseCollector::forget(const Choice&) {
  items_ = ResponseItems(run_.request_id, run_.request, nullptr);
}

awaitable<bool> ResponseCollector::on_error(Choice&, const Error& error) {
  error_ = error;
  co_return false;
}

}  // namespace quire
