#include "engine/capture_sizes.h"

namespace quire {

std::vector<int> capture_sizes_up_to(int most) {
  const auto next = [](int size) { return size < 8 ? 2 * size : size + (size < 256 ? 8 : 16); };
  std::vector<int> sizes;
  for (int size = 1; size < most; size = next(size)) sizes.push_back(size);
  sizes.push_back(most);
  return sizes;
}

}  // namespace quire
