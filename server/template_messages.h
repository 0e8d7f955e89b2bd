#pragma once
// A conversation as a chat template takes it: a list of dicts, in the roles that the template knows.

#include <string_view>

#include "base/result.h"
#include "openapi/dto.h"
#include "text/template/chat_template.h"

namespace quire {

// `source` is the template's text. Where it does not name "developer" (OpenAI's later name of the
// system message, which most templates would drop or refuse), such a message is a system message,
// and joins the others at the beginning, of which many templates take only one. With
// request.joins_system all system and developer messages become one first message, as vLLM's
// /v1/responses has it.
jinja::Value template_messages(const openapi::ChatCompletionRequest& request,
                               std::string_view source);

// A role of the client's own ("document", "ipython") is the template's affair; where the template
// neither names it nor has shown such a message's words in `rendered`, the error says which message
// would have been left out.
Result<void> check_roles(const openapi::ChatCompletionRequest& request, std::string_view source,
                         std::string_view rendered);

}  // namespace quire
