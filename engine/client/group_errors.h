#pragma once
// What a group of engines refuses a request with, in words.

#include <cstdint>

#include "base/error.h"

namespace quire {

Error draining_error();
// invalid_argument: of so many requests together no more than `most` could ever be taken.
Error too_many_error(std::int64_t requests, std::int64_t most);
Error queue_full_error(int max_queued);  // overloaded

}  // namespace quire
