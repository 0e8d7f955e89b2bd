#include "engine/capture_sizes.h"

namespace quire {
namespace {

template <class Next>
std::vector<int> sizes_up_to(int most, int first, Next next) {
  std::vector<int> sizes;
  for (int size = first; size < most; size = next(size)) sizes.push_back(size);
  sizes.push_back(most);
  return sizes;
}

}  // namespace

std::vector<int> capture_sizes_up_to(int most) {
  return sizes_up_to(most, 1, [](int size) {
    return size < 8 ? 2 * size : size + (size < 256 ? 8 : 16);
  });
}

std::vector<int> mixed_capture_sizes_up_to(int most) {
  return sizes_up_to(most, 2, [](int size) {
    return size < 16 ? 2 * size : size + (size < 64 ? 16 : 32);
  });
}

}  // namespace quire
