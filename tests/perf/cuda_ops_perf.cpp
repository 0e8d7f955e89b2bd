// Speed of the CUDA operators beside the limits that the same run probes: reads of device memory
// for what is bound by it, cuBLASLt for what is bound by the tensor cores. One JSON object a line.
//   cuda_ops_perf [--contact | --variants | --profile] [--only TEXT] [--tiny]
// --contact: what there is (device, driver, libraries), and one product. --variants: the same work
// in several ways beside each other. --profile: some cases once, for ncu --profile-from-start off.
// --only: cases whose names contain TEXT. --tiny: small shapes, to see that all of them run.

#include <cstring>

#include "tests/perf/cuda_bench.h"
#include "tests/perf/cuda_contact.h"

namespace quire::perf {
namespace {

void run(Purpose purpose, bool tiny, const std::string& only) {
  Bench bench(purpose, tiny, only);
  for (const auto cases : {attention_cases, latent_cases, linear_cases, expert_cases, state_cases,
                           row_cases, draw_cases})
    cases(bench);
}

}  // namespace
}  // namespace quire::perf

int main(int argc, char** argv) {
  using quire::perf::Purpose;
  Purpose purpose = Purpose::speed;
  bool tiny = false, contact = false;
  std::string only;
  for (int i = 1; i < argc; ++i) {
    const auto is = [&](const char* flag) { return std::strcmp(argv[i], flag) == 0; };
    if (is("--tiny")) tiny = true;
    if (is("--contact")) contact = true;
    if (is("--variants")) purpose = Purpose::variants;
    if (is("--profile")) purpose = Purpose::profile;
    if (is("--only") && i + 1 < argc) only = argv[++i];
  }
  if (const std::string reason = quire::cuda_unavailable(); !reason.empty()) {
    std::fprintf(stderr, "cuda_ops_perf: %s\n", reason.c_str());
    return 77;
  }
  try {
    if (contact) {
      quire::perf::first_contact();
    } else {
      quire::perf::run(purpose, tiny, only);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cuda_ops_perf: %s\n", error.what());
    return 1;
  }
}
