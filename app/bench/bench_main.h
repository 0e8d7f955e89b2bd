#pragma once

namespace quire {

// quire bench MODEL …: the exit code.
int bench_main(int argc, const char* const* argv);

}  // namespace quire
