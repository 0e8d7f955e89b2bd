#pragma once
// A channel between threads of one process: messages are moved, never encoded.

#include "engine/wire/channel.h"

namespace quire {

ChannelEnds make_in_process_channel(ChannelLimits limits = {});

}  // namespace quire
