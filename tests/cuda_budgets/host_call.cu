// For compile_test.py: what must not compile, a host's function called in a kernel.

#include <limits>

__global__ void host_call(float* out) { *out = std::numeric_limits<float>::infinity(); }
