#pragma once
// A model folder's words: tokenizer, chat template and defaults → TextPipeline.

#include <memory>

#include "app/serve/flags.h"
#include "server/text_pipeline.h"

namespace quire {

// Throws Failure naming the file or the flag that is wrong.
std::unique_ptr<const TextPipeline> load_model_text(const ServeFlags& flags);

}  // namespace quire
