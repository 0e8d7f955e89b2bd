#pragma once
// A fault to inject: from now on every call of the emulated runtime that reaches the device fails,
// and what was queued never runs. Any thread, signal handlers too.

namespace emulation {

void lose_device();

}  // namespace emulation
