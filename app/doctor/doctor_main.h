#pragma once

namespace quire {

// quire doctor [MODEL]: the exit code. 0: it would serve; 1: MODEL would be refused; 2 and above
// 100: the command line is wrong.
int doctor_main(int argc, const char* const* argv);

}  // namespace quire
