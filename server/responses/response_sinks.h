#pragma once
// Where the choice of a response goes: into a stream of events, or into one object.

#include <functional>
#include <string>
#include <vector>

#include "server/generation/stream_sink.h"
#include "server/responses/response_items.h"

namespace quire {

// A response under way. `on_complete` is called once, before a client hears of the end.
struct ResponseRun {
  const openapi::ResponsesRequest& request;
  openapi::ResponseObject object;
  std::string request_id;
  const TextDefaults& defaults;
  std::function<void(const openapi::ResponseObject&)> on_complete{};

  // The choice has ended; `items` are its whole output.
  void complete(const std::vector<Choice>& choices, const std::vector<openapi::ResponseItem>& items,
                bool whole);
};

class ResponseStream : public EventSink, private ResponseListener {
 public:
  ResponseStream(Exchange& exchange, const std::vector<Choice>& choices, ResponseRun& run);
  awaitable<bool> on_delta(Choice& choice, ChoiceDelta delta) override;

 protected:
  void write_error(const Error& error) override;
  awaitable<void> write_end() override;

 private:
  void on_added(std::size_t index, const openapi::ResponseItem& item) override;
  void on_text(std::size_t index, const openapi::ResponseItem& item, std::string_view piece,
               const std::vector<openapi::TokenLogprob>& logprobs) override;
  void on_arguments(std::size_t index, const openapi::ResponseItem& item,
                    std::string_view piece) override;
  void on_done(std::size_t index, const openapi::ResponseItem& item) override;

  // An event's type and number and, of an item, its place; the caller adds members and ends it.
  std::string& begin(std::string_view type);
  std::string& begin(std::string_view type, std::size_t index);
  std::string& begin(std::string_view type, std::size_t index, const openapi::ResponseItem& item);
  void end(std::string& out);
  void write_state(std::string_view type);
  void write_item(std::string_view type, std::size_t index, const openapi::ResponseItem& item);
  void write_part(std::string_view type, std::size_t index, const openapi::ResponseItem& item);
  void write_words(std::string_view type, std::size_t index, const openapi::ResponseItem& item,
                   std::string_view member, std::string_view words);

  const std::vector<Choice>& choices_;
  ResponseRun& run_;
  ResponseItems items_;
  std::int64_t sequence_ = 0;
};

class ResponseCollector : public ChoiceSink {
 public:
  ResponseCollector(const std::vector<Choice>& choices, ResponseRun& run);
  awaitable<bool> on_delta(Choice& choice, ChoiceDelta delta) override;
  awaitable<bool> on_error(Choice& choice, const Error& error) override;
  bool can_forget() const override { return true; }
  void forget(const Choice& choice) override;
  const std::optional<Error>& error() const { return error_; }

 private:
  const std::vector<Choice>& choices_;
  ResponseRun& run_;
  ResponseItems items_;
  std::optional<Error> error_;
};

}  // namespace quire
