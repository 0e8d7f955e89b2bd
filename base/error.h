#pragma once
// What can go wrong, for every folder. No Boost in here: backend/, cuda/ and model/ compile without
// it.

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

namespace quire {

enum class ErrorCode : std::uint8_t {
  invalid_argument,    // the caller's input is wrong; HTTP 400
  not_found,           // HTTP 404
  method_not_allowed,  // HTTP 405
  too_large,           // body or header over its limit; HTTP 413
  timeout,             // the peer was too slow; HTTP 408
  unauthorized,        // HTTP 401
  unsupported,         // understood, not offered; HTTP 501
  overloaded,          // queue full or starting; HTTP 503 with Retry-After
  unavailable,         // the engine is gone or draining; HTTP 503
  cancelled,           // the client left
  internal,            // our fault; HTTP 500
};

struct Error {
  ErrorCode code = ErrorCode::internal;
  std::string detail;  // one sentence for people: names the field and the limit
  std::string field;   // JSON pointer or configuration field (base/spelling.h); may be empty
};

// Thrown where the program cannot go on: bad configuration, broken model files, a lost device.
class Failure : public std::runtime_error {
 public:
  explicit Failure(Error error) : std::runtime_error(error.detail), error_(std::move(error)) {}
  Failure(ErrorCode code, std::string detail) : Failure(Error{code, std::move(detail), {}}) {}
  const Error& error() const { return error_; }

 private:
  Error error_;
};

}  // namespace quire
