#pragma once
// KV transfer on the command line: flags, or vLLM's JSON object.

#include <CLI/CLI.hpp>

#include "engine/config.h"

namespace quire {

// vLLM's object may also speak of what is behind the cache.
void add_kv_transfer_flags(CLI::App& app, KvTransferConfig& transfer, KvOffloadConfig& offload);

}  // namespace quire
