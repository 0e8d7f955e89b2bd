#pragma once
// How a chat template takes what a message says: as one text, or as a list of parts.

#include <cstdint>
#include <optional>
#include <string_view>

namespace quire::jinja {
struct TemplateTree;
}

namespace quire {

// Of --chat-template-content-format: "string", texts joined by line ends, and "openai", of every
// message a list of {"type": "text", "text": …}.
enum class ContentFormat : std::uint8_t { text, parts };

// By that name; unset for "auto" and for unknown ones.
std::optional<ContentFormat> find_content_format(std::string_view name);
std::string_view name_of(ContentFormat format);

// By vLLM's rules: parts where the template has a loop over a message's content. What a message is
// to it: what a loop over `messages`, or another name of it, gives; another name of its content: a
// macro's parameter that is given it, and `content` outside macros.
ContentFormat content_format_of(const jinja::TemplateTree& tree);

}  // namespace quire
