#pragma once
// The engine processes that a server starts itself, by rank: on Unix sockets in a folder of its
// own, with a secret that no command line shows. One that dies is started again, after a pause that
// grows; one that dies too often is given up, and when all are, the front end is told that they are
// dead. None outlives the server, however that ends.

#include <memory>
#include <string>
#include <vector>

#include "engine/wire/socket_channel.h"

namespace quire {

struct EngineProcessOptions {
  int count = 1;
  int devices = 1;                 // of each; its first is known by its number
  std::vector<std::string> flags;  // of `quire engine`, what all have in common, MODEL first
  int max_restarts = 5;            // of each engine within ten minutes
  SocketOptions socket = {};       // its secret is made up here
};

class EngineProcesses {
 public:
  // Throws Failure when the folder or the first processes cannot be made.
  explicit EngineProcesses(EngineProcessOptions options);
  // Asks them to end, and kills those that have not after five seconds.
  ~EngineProcesses();

  // The front end's ends of the lines, by rank; once. They may outlive this.
  std::vector<std::unique_ptr<ClientEnd>> take_ends();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire
