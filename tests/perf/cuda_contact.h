#pragma once

namespace quire::perf {

// Records of what there is: the device, the driver, cuBLASLt's version and file, NCCL; then one
// product by our own kernel and one by cuBLASLt. Throws Failure.
void first_contact();

}  // namespace quire::perf
