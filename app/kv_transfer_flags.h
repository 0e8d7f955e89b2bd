#pragma once
// KV transfer on the command line: flags, or vLLM's JSON object.

#include <CLI/CLI.hpp>

#include "engine/config.h"

namespace quire {

void add_kv_transfer_flags(CLI::App& app, KvTransferConfig& transfer);

}  // namespace quire
