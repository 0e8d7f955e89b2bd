#pragma once
// Messages as bytes, for engines in other processes: Protobuf as in messages.proto. Versions may
// differ: unknown fields and kinds are ignored, absent fields keep their defaults.

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "engine/wire/messages.h"

namespace quire {

// Times travel as what has passed since the origin. The two sides of a connection each take their
// own clock's time at its opening, so that a time is right on the other clock but for the delay of
// one message, and differences are exact.
std::string encode(const Command& command, Clock::time_point origin = {});
std::string encode(const EngineEvent& event, Clock::time_point origin = {});

// nullopt: a kind of message that this version does not know. Error: not such a message.
Result<std::optional<Command>> decode_command(std::string_view bytes,
                                              Clock::time_point origin = {});
Result<std::optional<EngineEvent>> decode_event(std::string_view bytes,
                                                Clock::time_point origin = {});

// Frames of the sockets' ends, as messages of unknown kinds, which other versions ignore. Is
// anybody there, and yes: 100 and 101, empty. A step's piece, of which more follows: 102, with what
// 4 would have. The engine has been asked to end, new requests belong elsewhere: 103, empty. To an
// engine: the server has as many as it wants, this one stands by: 104, empty.
inline constexpr std::string_view kPing{"\xa2\x06\x00", 3};
inline constexpr std::string_view kPong{"\xaa\x06\x00", 3};
inline constexpr std::string_view kPieceTag{"\xb2\x06", 2};
inline constexpr std::string_view kLeaving{"\xba\x06\x00", 3};
inline constexpr std::string_view kStandBy{"\xc2\x06\x00", 3};

// On a stream each message comes after its length: 4 bytes, little-endian.
inline constexpr std::size_t kMaxFrameBytes = std::size_t{64} << 20;

void append_frame(std::string& stream, std::string_view message);

// Cuts a stream into messages.
class FrameReader {
 public:
  void append(std::string_view bytes) { buffer_.append(bytes); }
  // The next whole message, valid until append(); nullopt: more bytes are needed. Error: a length
  // over kMaxFrameBytes; the stream is of no more use.
  Result<std::optional<std::string_view>> next();

 private:
  std::string buffer_;
  std::size_t read_ = 0;
};

}  // namespace quire
