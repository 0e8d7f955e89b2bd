#pragma once
// Prompts to a pooling model, and what they become.

#include <string>
#include <vector>

#include "openapi/pooling.h"
#include "server/app_state.h"
#include "server/http/exchange.h"

namespace quire {

struct PooledPrompt {
  std::vector<TokenId> ids;
  int second = 0;  // where the second text of a pair begins; 0: there is one text
};

struct Vectors {
  std::vector<std::vector<float>> values;  // by prompt, without activation
  std::int64_t prompt_tokens = 0;
};

// What can be said before there are tokens: the model's name, its task, what this key may.
Result<void> check_pooling(const openapi::PoolingRequest& request, PoolingTask task,
                           const Exchange& exchange, const AppState& app);

// Cuts the prompt from its right, but for the token that ends it.
Result<void> truncate(const openapi::PoolingRequest& request, const AppState& app,
                      std::vector<TokenId>& ids);

// Runs them all, some at a time, so that a long list takes no more of the queue than a short one.
awaitable<Result<Vectors>> run_prompts(std::vector<PooledPrompt> prompts,
                                       const openapi::PoolingRequest& request, Exchange& exchange,
                                       AppState& app);

// To length 1; zeros stay.
void normalize(std::vector<float>& vector);
// 1 / (1 + e^−x)
float sigmoid(float x);

// What the request asks for, or the model does by default.
bool uses_activation(const openapi::PoolingRequest& request, const AppState& app);
openapi::PoolingReply pooling_reply(const openapi::PoolingRequest& request,
                                    std::string_view prefix, const Vectors& vectors,
                                    const Exchange& exchange, const AppState& app);

}  // namespace quire
