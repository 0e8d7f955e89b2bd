#pragma once
// quire pull and quire models, and models by name for the other commands.

#include <string>

#include "engine/config.h"

namespace quire {

int pull_main(int argc, const char* const* argv);
int models_main(int argc, const char* const* argv);

// The folder of what a command was told: a folder stays as it is; org/name[@revision] is looked for
// in the cache, and fetched where it is not there and `may_fetch`. Throws Failure.
std::string model_folder(const std::string& model, bool may_fetch);

// The folder or GGUF file of what a command was told, as it lies on this machine: nothing is
// fetched. Throws Failure where there is none.
std::string local_model(const std::string& model);

// The folder of a draft model that was called by name, as model_folder finds it; none where MTP is
// told the model's own, as vLLM wants it. How many tokens it proposes is in its config where
// nothing was said. After the model's folder is known. Throws Failure.
void find_draft_model(EngineConfig& config, bool may_fetch);

}  // namespace quire
