#pragma once
// Drafts on the command line: vLLM's JSON object, or a flag for each of its fields.

#include <CLI/CLI.hpp>

#include "engine/config.h"

namespace quire {

void add_speculative_flags(CLI::App& app, SpeculativeConfig& speculative);

}  // namespace quire
