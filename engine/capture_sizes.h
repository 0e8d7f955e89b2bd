#pragma once
// For which sizes of decode steps graphs are captured where nobody names them.

#include <vector>

namespace quire {

// 1, 2, 4, then in steps of 8, from 256 on in steps of 16; the last is `most`.
std::vector<int> capture_sizes_up_to(int most);

}  // namespace quire
