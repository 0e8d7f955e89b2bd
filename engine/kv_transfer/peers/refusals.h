#pragma once
// Lines of the log that a peer can cause at will. Any thread.

#include <string_view>

namespace quire {

// A few of them a second; `from` may be empty.
void log_refused(std::string_view because, std::string_view from = {});

}  // namespace quire
