#pragma once
// Of `quire serve` and `quire engine`, for scripts and service managers. 0: asked to end; 1: did not
// start; 2 and others of CLI11's: the command line is wrong.

namespace quire {

inline constexpr int kExitAbandoned = 3;   // a stop took too long, and threads were left behind
inline constexpr int kExitEngineDied = 4;  // restart me: nothing was wrong with the command line
inline constexpr int kExitNotFetched = 5;  // `serve org/name`: the name is right and its files could not be had
inline constexpr int kExitModelLost = 6;   // a file of the model that was in use could not be read
inline constexpr int kExitNotWritten = 7;  // of any command: its output could not be written

}  // namespace quire
