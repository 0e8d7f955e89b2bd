#pragma once
// What clients that tokenize like the server need to know of a model folder.

#include <optional>
#include <string>

#include "text/template/chat_template.h"

namespace quire {

// tokenizer_config.json with the chat template that is in use, as JSON text.
std::string tokenizer_info(const std::string& model_dir,
                           const std::optional<ChatTemplate>& chat_template);

}  // namespace quire
