#pragma once
// `quire engine`: an engine for servers in other processes.

namespace quire {

int engine_main(int argc, const char* const* argv);

}  // namespace quire
