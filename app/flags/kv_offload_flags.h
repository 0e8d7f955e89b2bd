#pragma once
// KV offload on the command line: flags, or vLLM's.

#include <CLI/CLI.hpp>

#include "engine/config.h"

namespace quire {

void add_kv_offload_flags(CLI::App& app, KvOffloadConfig& offload);

}  // namespace quire
