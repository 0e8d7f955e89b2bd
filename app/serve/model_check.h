#pragma once
// Whether an engine elsewhere has the model of this server's own folder, by what both can know.

#include <functional>

#include "base/result.h"
#include "engine/config.h"
#include "engine/wire/messages.h"

namespace quire {

// Compares the vocabulary's size, and where the folder has weights and the engine is of this
// version, the fingerprint. What an engine does not say is not compared. Throws Failure for a
// folder that cannot be read.
std::function<Result<void>(const Ready&)> same_model_as(const EngineConfig& config);

}  // namespace quire
