#pragma once
// What a client is told whose part of the room is taken (fair_share.h), whatever it asked for.

#include "base/result.h"

namespace quire {

inline Error share_refusal() {
  return {ErrorCode::overloaded,
          "This client has its share of the queue, and others wait; try again later",
          {}};
}

}  // namespace quire
