#pragma once
// From a completion request to its prompts.

#include <cstdint>
#include <vector>

#include "server/generation/choices.h"

namespace quire {

constexpr std::int64_t kDefaultCompletionTokens = 16;

// What its choices share; an error names the member.
Result<void> fill_plan(const openapi::CompletionRequest& request, const Tokenizer& tokenizer,
                       ChoicePlan& plan);

// What a request gets wrong, or its prompts as tokens, long ones made on a worker.
awaitable<Result<std::vector<std::vector<TokenId>>>> checked_prompts(
    const openapi::CompletionRequest& request, std::size_t body_size, AppState& app);

}  // namespace quire
