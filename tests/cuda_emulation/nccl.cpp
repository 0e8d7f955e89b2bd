// NCCL where devices are emulated: a library of its name and of the functions that Quire uses,
// opened as the real one is. Ranks are processes of one machine that share memory. What NCCL leaves
// undefined is a fault here: another call, another size, or captured on one rank and not on
// another.

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/shared_memory.h"
#include "cpu/shared_collectives.h"
#include "memory.h"
#include "runtime.h"

namespace {

using namespace quire;

enum Result : int { kSuccess = 0, kSystemError = 2, kInvalidArgument = 4, kInvalidUsage = 5 };
enum class Call : std::int32_t { all_reduce, all_gather, broadcast };
constexpr int kMostRanks = 64;
const StreamRef kHost = StreamRef::from_handle(nullptr);
std::string last_error;

struct Id {
  char path[128];
};

// In the memory that ranks share, which begins as zeros.
struct Header {
  SharedCount joined;
  std::atomic<int> devices[kMostRanks];
};
constexpr std::size_t kSums = (sizeof(Header) + 63) / 64 * 64;

struct Communicator {
  SharedMemory memory;
  int rank, size;
  SharedFate aborted = {};  // this rank's own: others go on waiting
  std::unique_ptr<Collectives> collectives = {};
};

// What all ranks must say alike.
struct Signature {
  Call call;
  std::int32_t count, detail, captured;
};

TensorView row(const void* data, std::int64_t count) {
  return TensorView(const_cast<void*>(data), DType::f32, {1, count});
}

void compare(Communicator& comm, const Signature& own) {
  constexpr std::int64_t kWords = sizeof(Signature) / sizeof(float);
  Signature all[kMostRanks];
  comm.collectives->gather_columns(row(all, kWords * comm.size), row(&own, kWords), kWords, kHost);
  for (int r = 0; r < comm.size; ++r)
    if (std::memcmp(&all[r], &own, sizeof own) != 0)
      throw std::runtime_error("rank " + std::to_string(r) + " and rank " +
                               std::to_string(comm.rank) + " make different calls");
}

Result refuse(Result result, const std::string& why) {
  last_error = why;
  return result;
}

bool is_on_device(const void* data, std::size_t bytes) {
  return emulation::space_of(data) == emulation::Space::device && emulation::is_whole(data, bytes);
}

template <class Exchange>
Result queue(Communicator* comm, cudaStream_t stream, const void* from, std::size_t read, void* to,
             std::size_t written, Signature signature, const Exchange& exchange) {
  LOCK;
  if (!is_on_device(from, read) || !is_on_device(to, written))
    return refuse(kInvalidArgument, "a buffer is not the device's, or too small");
  signature.captured = emulation::is_capturing(stream) ? 1 : 0;
  const auto work = [=] {
    if (comm->aborted.has_failed()) return;
    try {
      compare(*comm, signature);
      exchange();
    } catch (const Failure&) {  // aborted
    }
  };
  return emulation::put(stream, work) == cudaSuccess ? kSuccess : kSystemError;
}

}  // namespace

extern "C" {

// QUIRE_EMULATION_NCCL_VERSION=21605: an old one.
int ncclGetVersion(int* version) {
  const char* text = std::getenv("QUIRE_EMULATION_NCCL_VERSION");
  return *version = text != nullptr ? std::atoi(text) : 22703, kSuccess;
}
const char* ncclGetErrorString(int) { return "emulated NCCL error"; }
const char* ncclGetLastError(Communicator*) { return last_error.c_str(); }

// The memory is found through the process that has made it.
int ncclGetUniqueId(Id* id) {
  LOCK;
  static auto* all = new std::vector<SharedMemory>;
  all->push_back(
      SharedMemory::create("emulated-nccl", kSums + shared_collectives_bytes(kMostRanks)));
  std::snprintf(id->path, sizeof id->path, "/proc/%d/fd/%d", getpid(), all->back().descriptor());
  return kSuccess;
}

int ncclCommInitRank(Communicator** comm, int size, Id id, int rank) {
  const int descriptor = open(id.path, O_RDWR);
  if (descriptor < 0) return refuse(kSystemError, std::string(id.path) + " is not there");
  auto* made =
      new Communicator{.memory = SharedMemory::open(descriptor), .rank = rank, .size = size};
  auto& header = *reinterpret_cast<Header*>(made->memory.data());
  int device = 0;
  cudaGetDevice(&device);
  header.devices[rank] = 1 + device;
  header.joined.raise();
  header.joined.wait_for(static_cast<std::uint32_t>(size), nullptr);
  for (int r = 0; r < size; ++r)
    if (r != rank && header.devices[r] == header.devices[rank])
      return refuse(kInvalidUsage, "rank " + std::to_string(r) + " has device " +
                                       std::to_string(device) + " as well");
  made->collectives =
      make_shared_collectives(made->memory.data() + kSums, made->aborted, rank, size);
  emulation::run_by_itself();
  *comm = made;
  return kSuccess;
}

// What is queued refers to it, so it stays.
int ncclCommAbort(Communicator* comm) { return comm->aborted.fail("aborted"), kSuccess; }

int ncclAllReduce(const void* from, void* to, std::size_t count, int type, int op,
                  Communicator* comm, cudaStream_t stream) {
  const auto n = static_cast<std::int64_t>(count);
  if (type != 7 || op != 0) return refuse(kInvalidArgument, "only sums of floats are emulated");
  return queue(comm, stream, from, 4 * count, to, 4 * count,
               {Call::all_reduce, static_cast<std::int32_t>(n), op, 0}, [=] {
                 if (from != to) std::memcpy(to, from, 4 * count);
                 comm->collectives->all_reduce(row(to, n), kHost);
               });
}

int ncclAllGather(const void* from, void* to, std::size_t count, int type, Communicator* comm,
                  cudaStream_t stream) {
  const auto n = static_cast<std::int64_t>(count);
  if (type != 7) return refuse(kInvalidArgument, "only floats are gathered");
  const std::size_t all = count * static_cast<std::size_t>(comm->size);
  return queue(comm, stream, from, 4 * count, to, 4 * all,
               {Call::all_gather, static_cast<std::int32_t>(n), type, 0}, [=] {
                 comm->collectives->gather_columns(row(to, n * comm->size), row(from, n), n, kHost);
               });
}

int ncclBroadcast(const void* from, void* to, std::size_t count, int type, int root,
                  Communicator* comm, cudaStream_t stream) {
  const auto n = static_cast<std::int64_t>(count);
  if (root != 0 || from != to || (type != 2 && type != 7))
    return refuse(kInvalidArgument, "only words of rank 0 are broadcast, in place");
  return queue(comm, stream, from, 4 * count, to, 4 * count,
               {Call::broadcast, static_cast<std::int32_t>(n), type, 0},
               [=] { comm->collectives->broadcast(row(to, n), kHost); });
}

}  // extern "C"
