#pragma once
// The one way from a chat request to running choices, whichever API's words it came in.

#include <optional>
#include <vector>

#include "server/generation/choices.h"

namespace quire {

struct RunningChat {
  std::vector<TokenId> prompt_ids{};  // when return_token_ids
  std::vector<Choice> choices{};      // ~Generation() aborts in the engine on every way out
};

// Checks it, makes its prompt, long ones on a worker, and submits its choices.
awaitable<Result<RunningChat>> start_chat(const openapi::ChatCompletionRequest& chat,
                                          Exchange& exchange, AppState& app);

// Checks it and makes its prompt; nothing is submitted.
awaitable<Result<ChatPrompt>> checked_chat_prompt(const openapi::ChatCompletionRequest& chat,
                                                  AppState& app);

// How the model's output will be read, where it is more than text.
std::optional<OutputFormat> chat_format(const openapi::ChatCompletionRequest& chat,
                                        const TextPipeline& text, const ChatPrompt& prompt);

// The prompt alone, whatever its length.
awaitable<Result<ChatPrompt>> chat_prompt_of(const openapi::ChatCompletionRequest& chat,
                                             std::int64_t max_tokens, AppState& app);

}  // namespace quire
