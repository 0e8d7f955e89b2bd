#pragma once
// Result<T>: a value, or an Error that callers have to expect. Apart from error.h because it needs
// Boost.

#include <boost/system/result.hpp>

#include "base/error.h"

namespace quire {

[[noreturn]] inline void throw_exception_from_error(const Error& error,
                                                    const boost::source_location&) {
  throw Failure(error);
}

template <class T>
using Result = boost::system::result<T, Error>;

}  // namespace quire
