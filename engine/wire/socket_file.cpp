#include "engine/wire/socket_file.h"

#include <sys/stat.h>
#include <unistd.h>

namespace quire {

SocketFile::SocketFile(const SocketAddress& listened) : path_(listened.path) {
  struct stat info {};
  if (path_.empty() || ::lstat(path_.c_str(), &info) != 0) return;
  device_ = info.st_dev;
  inode_ = info.st_ino;
}

SocketFile::~SocketFile() {
  struct stat info {};
  if (inode_ == 0 || ::lstat(path_.c_str(), &info) != 0) return;
  if (info.st_dev == device_ && info.st_ino == inode_) ::unlink(path_.c_str());
}

}  // namespace quire
