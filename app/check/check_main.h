#pragma once
// quire check MODEL: a folder of reference answers through the real engine path.

namespace quire {

// 0: everything within bounds; 1: a miss; 2: it could not run.
int check_main(int argc, const char* const* argv);

}  // namespace quire
