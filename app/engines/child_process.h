#pragma once
// A child process that must not outlive its parent: it is killed when the thread that started it
// ends, however it ends. Of one thread.

#include <string>
#include <vector>

#include "engine/wire/socket_address.h"

namespace quire {

class ChildProcess {
 public:
  // Runs this program's own binary with these arguments, of which the first is the command's name.
  // `inherited` stays open in the child under its number. Throws Failure.
  ChildProcess(const std::vector<std::string>& arguments, int inherited);
  // Kills it if it still runs.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  int pid() const { return pid_; }
  // Becomes readable when the child has ended.
  int ended_descriptor() const { return alive_.get(); }
  void signal(int number) const;
  // Waits for the end: "exit code 1" or "signal 9".
  std::string wait();

 private:
  int pid_ = -1;  // of a child that has not been waited for
  Descriptor alive_;
};

}  // namespace quire
