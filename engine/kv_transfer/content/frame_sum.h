#pragma once
// The checksum of a frame whose body is still on its way.

#include "engine/kv_transfer/content/checksum.h"
#include "engine/kv_transfer/content/frames.h"

namespace quire {

// end() of it, after the whole body, is the header's checksum.
KvSum sum_of_body(const KvFrameHeader& header);

}  // namespace quire
