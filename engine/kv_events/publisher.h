#pragma once
// Publishes KV events over ZeroMQ as vLLM does: PUB frames [topic, sequence number (8 bytes, big
// endian), msgpack batch]; a ROUTER answers a first sequence number with every batch since that is
// still kept, then −1. Own thread: neither subscribers nor encoding hold up the engine.

#include <memory>
#include <string>
#include <vector>

#include "engine/config.h"
#include "engine/kv_events/encoding.h"

namespace quire {

class KvEventPublisher {
 public:
  // Throws Failure if an endpoint cannot be used.
  KvEventPublisher(const KvEventsConfig& config, KvEventFormat format);
  KvEventPublisher(const KvEventPublisher&) = delete;
  KvEventPublisher& operator=(const KvEventPublisher&) = delete;
  // Sends what is queued, for at most a second.
  ~KvEventPublisher();

  // Never blocks. When subscribers' frames pile up beyond the limit, batches are dropped; their
  // sequence numbers are missing then, so that subscribers notice.
  void publish(std::vector<KvEvent> events);

  // The addresses as bound, with the port where "tcp://*:*" chose one.
  const std::string& endpoint() const;
  const std::string& replay_endpoint() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Every data-parallel engine has its own port: the base one and its rank. inproc and ipc addresses
// get a suffix.
std::string endpoint_of_rank(const std::string& endpoint, int rank);

}  // namespace quire
