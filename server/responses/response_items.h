#pragma once
// What a choice says, as the items of a response: a thought, a text or a call each, in the order in
// which the model wrote them.

#include <string>
#include <vector>

#include "openapi/responses.h"
#include "server/generation/choice_text.h"

namespace quire {

// Hears of every change; `index` is the item's.
class ResponseListener {
 public:
  virtual ~ResponseListener() = default;
  virtual void on_added(std::size_t index, const openapi::ResponseItem& item) = 0;
  virtual void on_text(std::size_t index, const openapi::ResponseItem& item, std::string_view piece,
                       const std::vector<openapi::TokenLogprob>& logprobs) = 0;
  virtual void on_arguments(std::size_t index, const openapi::ResponseItem& item,
                            std::string_view piece) = 0;
  virtual void on_done(std::size_t index, const openapi::ResponseItem& item) = 0;
};

class ResponseItems {
 public:
  // The ids of items end in that of the request. No listener: no events are wanted.
  ResponseItems(std::string request_id, const openapi::ResponsesRequest& request,
                ResponseListener* listener)
      : request_id_(std::move(request_id)), request_(&request), listener_(listener) {}

  void push(ChoiceDelta delta);
  // `whole`: the last item is complete.
  void finish(bool whole);
  const std::vector<openapi::ResponseItem>& items() const { return items_; }

 private:
  using Kind = openapi::ResponseItem::Kind;

  openapi::ResponseItem& open(Kind kind);
  void close(std::string_view status);
  void push_text(Kind kind, std::string_view text);
  void open_call(const ToolCallDelta& call);
  void push_call(const ToolCallDelta& call);

  std::string request_id_;
  const openapi::ResponsesRequest* request_;
  ResponseListener* listener_;
  std::vector<openapi::ResponseItem> items_;
  std::vector<openapi::TokenLogprob> logprobs_;  // of tokens whose text is held back
  bool is_open_ = false;                         // the last item goes on
};

}  // namespace quire
