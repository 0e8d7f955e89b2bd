#pragma once
// Messages with no field left at its default, for tests that must notice a forgotten one.

#include <vector>

#include "engine/wire/messages.h"

namespace quire::test {

std::vector<Command> sample_commands();
std::vector<EngineEvent> sample_events();

}  // namespace quire::test
