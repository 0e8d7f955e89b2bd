#include "text/output/call_writer.h"

#include <algorithm>

namespace quire {

void CallWriter::begin(OutputDelta& delta, CallIds ids, const std::string& written,
                       std::string name) {
  std::string id = written;
  const bool is_taken = std::find(written_.begin(), written_.end(), id) != written_.end();
  if (id.empty() || is_taken) {
    id = new_id(ids);
  } else {
    written_.push_back(id);
  }
  delta.tool_calls.push_back({num_calls_++, std::move(id), std::move(name), ""});
}

void CallWriter::add(OutputDelta& delta, std::string_view arguments) {
  const int index = num_calls_ - 1;
  if (delta.tool_calls.empty() || delta.tool_calls.back().index != index) {
    delta.tool_calls.push_back({index, {}, {}, ""});
  }
  delta.tool_calls.back().arguments += arguments;
}

std::string CallWriter::new_id(CallIds ids) {
  constexpr std::string_view kLetters =
      "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  if (!random_) random_.emplace(std::random_device{}());
  const bool is_short = ids == CallIds::nine_letters;
  std::string id = is_short ? "" : "chatcmpl-tool-";
  for (int i = is_short ? 9 : 32; i > 0; --i) {
    id += kLetters[(*random_)() % (is_short ? kLetters.size() : 16)];
  }
  return id;
}

}  // namespace quire
