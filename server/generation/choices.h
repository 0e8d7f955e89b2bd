#pragma once
// The running choices of one HTTP request: n per prompt. Handing them to the engine, and carrying
// what comes back to a sink.

#include <vector>

#include "engine/client/generation.h"
#include "server/app_state.h"
#include "server/generation/choice_text.h"
#include "server/http/exchange.h"
#include "server/metrics/choice_tracker.h"

namespace quire {

struct Choice {
  int index = 0;
  int prompt = 0;  // which of the request's prompts
  int prompt_tokens = 0;
  int cached_tokens = 0;
  Generation generation;
  ChoiceText text;
  ChoiceTracker tracker;
  FairShare::Held place;
  KeyInUse* key = nullptr;                                // whose tokens are counted
  int charged_tokens = 0;                                 // to the key
  Clock::time_point deadline = Clock::time_point::max();  // after it nobody wants the rest
};

// A request's own time was over before its answer was complete.
Error overdue_error();

// Where a choice's outputs go; all on the connection's strand.
class ChoiceSink {
 public:
  virtual ~ChoiceSink() = default;
  // The last one has a finish_reason. False: nobody reads any more.
  virtual awaitable<bool> on_delta(Choice& choice, ChoiceDelta delta) = 0;
  virtual awaitable<bool> on_error(Choice& choice, const Error& error) = 0;

  // One that shows nothing before the end can forget what a choice has said so far.
  virtual bool can_forget() const { return false; }
  virtual void forget(const Choice&) {}
};

// What all prompts of one HTTP request share.
struct ChoicePlan {
  explicit ChoicePlan(const openapi::GenerationRequest& of);

  const openapi::GenerationRequest& request;
  ChoiceTextOptions text;
  std::optional<int> logprobs{};
  std::optional<int> prompt_logprobs{};
  std::optional<std::int64_t> default_max_tokens{};
  std::optional<ConstraintSpec> constraint{};
  std::vector<TokenWord> bad_words{};
  std::string transfer_name{};  // what vLLM calls such a request's first prompt
};

// Cuts the prompt from its left to truncate_prompt_tokens.
Result<void> truncate_prompt(const openapi::GenerationRequest& request, const AppState& app,
                             std::vector<TokenId>& prompt);

// What can be said before there are tokens: the model's name, what is not offered.
Result<void> check_request(const openapi::GenerationRequest& request, const AppState& app);

// Submits n choices for every prompt: all of them or none, whatever other requests come at the same
// time. Whether there is room is said before anything is copied.
Result<std::vector<Choice>> submit_choices(const ChoicePlan& plan, Exchange& exchange,
                                           AppState& app,
                                           std::vector<std::vector<TokenId>> prompts);

// Until every choice has ended, or the client has left: false. An engine's error goes to the sink.
awaitable<bool> run_choices(std::vector<Choice>& choices, ChoiceSink& sink, Exchange& exchange);

openapi::Usage usage_of(const std::vector<Choice>& choices, const TextDefaults& defaults);

}  // namespace quire
