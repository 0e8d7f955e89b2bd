#pragma once
// The proxy's own errors in the form in which a path's clients look for them, and streams of events
// that an error may follow.

#include <string>
#include <string_view>

#include "proxy/connection.h"

namespace quire::proxy {

std::string error_body(std::string_view target, int status, std::string_view message);

// The last of a stream that broke off.
std::string error_event(std::string_view target, std::string_view message);

// Lets whole events through: one that is cut could not be followed by another.
class EventPieces {
 public:
  // What may go out now. Valid until the next call.
  std::string_view push(std::string_view piece);
  // What is left at a regular end.
  std::string_view rest() const { return held_; }

 private:
  std::string held_, whole_;
};

}  // namespace quire::proxy
