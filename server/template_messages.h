#pragma once
// A conversation as a chat template takes it: a list of dicts, in the roles that the template
// knows.

#include <functional>
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
// What they say is given in `format`, but for what a tool said, which is a text to any template.
jinja::Value template_messages(const openapi::ChatCompletionRequest& request,
                               std::string_view source, ContentFormat format);

// Whether all that instructs may be made one system message, the first, for a template that refuses
// others or leaves them out: in Messages and beside developers, as in vLLM. False where it is one.
bool may_join_instructions(const openapi::ChatCompletionRequest& request, std::string_view source);
openapi::ChatCompletionRequest with_joined_instructions(openapi::ChatCompletionRequest request);

using RenderRequest = std::function<RenderResult(const openapi::ChatCompletionRequest&)>;

// Whether a prompt has all that instructs. What it says does not matter: it is rendered with other
// words there.
bool shows_instructions(const openapi::ChatCompletionRequest& request, const RenderRequest& render);

// A role of the client's own ("document", "ipython") is the template's affair; where the template
// does not name it, the request is rendered once more with other words in such messages, and the
// error says which of them would be left out.
Result<void> check_roles(const openapi::ChatCompletionRequest& request, std::string_view source,
                         const RenderRequest& render);

}  // namespace quire
