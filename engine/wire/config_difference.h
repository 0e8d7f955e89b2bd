#pragma once
// The first field in which two configurations differ, "scheduler.max_num_seqs"; empty: none.

#include <string>

#include "engine/config.h"

namespace quire {

std::string first_difference(const EngineConfig& a, const EngineConfig& b);

}  // namespace quire
