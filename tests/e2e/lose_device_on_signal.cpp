// Linked into a program with emulated CUDA: SIGUSR1 takes its device away.

#include <csignal>

#include "tests/cuda_emulation/device_loss.h"

namespace {

[[maybe_unused]] const auto previous_handler =
    std::signal(SIGUSR1, [](int) { emulation::lose_device(); });

}  // namespace
