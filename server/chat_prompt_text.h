#pragma once
// The words of a chat request as the model sees them: of the server and of `quire render` alike.

#include <optional>
#include <string>

#include "server/text_pipeline.h"

namespace quire {

// By the request's own template, where it brings one and that is trusted, else by `of_model` (null:
// the model has none). `format`: in place of what the defaults say, or the template takes.
Result<std::string> chat_prompt_text(const openapi::ChatCompletionRequest& request,
                                     const ChatTemplate* of_model, const TextDefaults& defaults,
                                     std::optional<ContentFormat> format = {});

}  // namespace quire
