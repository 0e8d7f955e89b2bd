#pragma once
// A `quire serve` of our own for one conversation: a child process on a Unix socket in a folder that
// only this user can enter. It ends with this object, and with this process however that ends.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "net/url.h"

namespace quire {

class ChatServer {
 public:
  // Starts it and waits until it is ready; `progress` hears what it is waiting for. Throws Failure
  // with the server's own words where it does not start, and cancelled once `stopped` says so.
  ChatServer(const std::string& model, const std::vector<std::string>& flags,
             const std::function<void(const std::string&)>& progress,
             const std::function<bool()>& stopped);
  ~ChatServer();
  ChatServer(const ChatServer&) = delete;
  ChatServer& operator=(const ChatServer&) = delete;

  net::Url url() const;

 private:
  struct Process;
  std::unique_ptr<Process> process_;
};

}  // namespace quire
