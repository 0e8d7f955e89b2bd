#include "text/output/channel_header.h"

#include "text/output/marker_matcher.h"

namespace quire {
namespace {

constexpr std::string_view kChannel = "<|channel|>";
constexpr std::string_view kMessage = "<|message|>";
constexpr std::string_view kFunctions = "functions.";

std::string_view word_at(std::string_view text) {
  text = text.substr(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  return text.substr(0, text.find_first_of(" \t\r\n<"));
}

}  // namespace

ChannelHeader::Status ChannelHeader::push(char c) {
  text_ += c;
  if (text_.ends_with(kMessage)) return Status::done;
  return may_begin() && text_.size() <= kMaxBytes ? Status::more : Status::none;
}

bool ChannelHeader::may_begin() const {
  const std::string_view begun = without_space(text_);
  for (const std::string_view beginning : {"<|start|>", "<|channel|>", "<|message|>", "to="}) {
    const std::size_t same = std::min(begun.size(), beginning.size());
    if (begun.substr(0, same) == beginning.substr(0, same)) return true;
  }
  return false;
}

bool ChannelHeader::is_markup() const { return text_.find("<|") != text_.npos; }

std::string_view ChannelHeader::recipient() const {
  const std::string_view text = text_;
  const std::size_t to = text.find("to=");
  return to == text.npos ? std::string_view() : word_at(text.substr(to + 3));
}

ChannelHeader::Kind ChannelHeader::kind() const {
  if (recipient().size() > kFunctions.size() && recipient().starts_with(kFunctions)) {
    return Kind::call;
  }
  const std::size_t channel = text_.find(kChannel);
  if (channel == text_.npos) return Kind::content;
  return word_at(std::string_view(text_).substr(channel + kChannel.size())) == "analysis"
             ? Kind::reasoning
             : Kind::content;
}

std::string ChannelHeader::function() const {
  return std::string(recipient().substr(kFunctions.size()));
}

}  // namespace quire
