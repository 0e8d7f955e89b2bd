#pragma once
// What a request demands of its output → what the engine draws by. Nothing is compiled here: a
// specification that is wrong is the engine's to refuse, with its place in the request.

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/request/sampling_params.h"
#include "openapi/dto.h"
#include "text/output/output_parser.h"
#include "text/tokenizer/tokenizer.h"

namespace quire {

// Unset where any text will do. `format`: how the model thinks and calls; its dialect is known where
// a call is required.
Result<std::optional<ConstraintSpec>> chat_constraint(const openapi::ChatCompletionRequest& chat,
                                                      const OutputFormat& format);
// The same as a structural tag for /inference/v1/generate: the text of its JSON.
Result<std::optional<std::string>> rendered_constraint(const openapi::ChatCompletionRequest& chat,
                                                       const OutputFormat& format);
// What the request wants the text to be from its beginning.
Result<std::optional<ConstraintSpec>> text_constraint(const openapi::GenerationRequest& request);

// Each word as it begins a text and as it follows a space.
Result<std::vector<TokenWord>> bad_words(const std::vector<std::string>& words,
                                         const Tokenizer& tokenizer);

// About how long all of this takes, in bytes of text.
std::size_t constraint_size(const openapi::GenerationRequest& request);

}  // namespace quire
