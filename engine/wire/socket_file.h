#pragma once
// The file of a Unix socket that listens: goes when the listener does, where it is still that one.

#include <sys/types.h>

#include "engine/wire/socket_address.h"

namespace quire {

class SocketFile {
 public:
  explicit SocketFile(const SocketAddress& listened);  // of TCP none
  ~SocketFile();
  SocketFile(const SocketFile&) = delete;
  SocketFile& operator=(const SocketFile&) = delete;

 private:
  const std::string path_;
  dev_t device_ = 0;
  ino_t inode_ = 0;  // 0: none
};

}  // namespace quire
