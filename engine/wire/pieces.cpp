#include "engine/wire/pieces.h"

#include <iterator>
#include <utility>

#include "engine/wire/encoding.h"

namespace quire {
namespace {

constexpr std::size_t kBytesOfPosition = 24;  // about, encoded, and of its list's entries
constexpr std::size_t kBytesOfLogprob = 12;
constexpr char kStepTag = '\x22';  // of kind 4, the first byte of a step's frame

std::size_t size_of(const PositionLogprobs& position) {
  return kBytesOfPosition + kBytesOfLogprob * position.top.size();
}

std::size_t size_of(const std::vector<PositionLogprobs>& positions) {
  std::size_t sum = 0;
  for (const PositionLogprobs& position : positions) sum += size_of(position);
  return sum;
}

// How many from `first` on fill a piece; at least one.
std::size_t count_from(const std::vector<PositionLogprobs>& positions, std::size_t first,
                       std::size_t piece_bytes) {
  std::size_t bytes = 0, count = 0;
  while (first + count < positions.size() && (count == 0 || bytes < piece_bytes))
    bytes += size_of(positions[first + count++]);
  return count;
}

template <class T>
std::vector<T> take_front(std::vector<T>& all, std::size_t first, std::size_t count) {
  const auto begin = all.begin() + static_cast<std::ptrdiff_t>(first);
  const auto end = begin + static_cast<std::ptrdiff_t>(count);
  return {std::make_move_iterator(begin), std::make_move_iterator(end)};
}

class Cutter {
 public:
  Cutter(std::vector<std::string>& frames, Clock::time_point origin, std::size_t piece_bytes)
      : frames_(frames), origin_(origin), piece_bytes_(piece_bytes) {}

  // Everything of the long lists but, of tokens, the last piece: `output` ends with a token.
  void cut(RequestOutput& output) {
    if (auto& all = output.prompt_logprobs; size_of(all) >= piece_bytes_) {
      for (std::size_t first = 0, count = 0; first < all.size(); first += count) {
        count = count_from(all, first, piece_bytes_);
        RequestOutput piece;
        piece.prompt_logprobs = take_front(all, first, count);
        put(output.id, std::move(piece));
      }
      all.clear();
    }
    auto& all = output.logprobs;
    if (all.size() != output.token_ids.size() || size_of(all) < piece_bytes_) return;
    std::size_t first = 0;
    for (std::size_t count = 0;; first += count) {
      count = count_from(all, first, piece_bytes_);
      if (first + count == all.size()) break;
      RequestOutput piece;
      piece.token_ids = take_front(output.token_ids, first, count);
      piece.logprobs = take_front(all, first, count);
      put(output.id, std::move(piece));
    }
    const auto cut_off = static_cast<std::ptrdiff_t>(first);
    all.erase(all.begin(), all.begin() + cut_off);
    output.token_ids.erase(output.token_ids.begin(), output.token_ids.begin() + cut_off);
  }

 private:
  void put(RequestId id, RequestOutput piece) {
    piece.id = id;
    StepOutput step;
    step.requests.push_back(std::move(piece));
    std::string frame = encode(EngineEvent(std::move(step)), origin_);
    frames_.push_back(std::string(kPieceTag) + frame.substr(1));
  }

  std::vector<std::string>& frames_;
  const Clock::time_point origin_;
  const std::size_t piece_bytes_;
};

}  // namespace

std::vector<std::string> encode_in_pieces(StepOutput&& step, Clock::time_point origin,
                                          std::size_t piece_bytes) {
  std::vector<std::string> frames;
  Cutter cutter(frames, origin, piece_bytes);
  for (RequestOutput& output : step.requests) cutter.cut(output);
  frames.push_back(encode(EngineEvent(std::move(step)), origin));
  return frames;
}

Result<std::optional<EngineEvent>> PieceJoiner::decode(std::string_view frame,
                                                       Clock::time_point origin) {
  const bool is_piece = frame.starts_with(kPieceTag);
  auto event = is_piece
                   ? decode_event(kStepTag + std::string(frame.substr(kPieceTag.size())), origin)
                   : decode_event(frame, origin);
  if (!event || !*event) return event;
  auto* step = std::get_if<StepOutput>(&**event);
  if (step == nullptr) return event;
  if (!is_piece) {
    join(*step);
    return event;
  }
  for (RequestOutput& output : step->requests) {
    const RequestId id = output.id;
    const auto [begun, is_new] = begun_.try_emplace(id);
    if (is_new) {
      begun->second = std::move(output);
    } else {
      merge(begun->second, std::move(output));
    }
  }
  return std::optional<EngineEvent>();
}

void PieceJoiner::join(StepOutput& step) {
  if (begun_.empty()) return;
  for (RequestOutput& output : step.requests) {
    const auto begun = begun_.find(output.id);
    if (begun == begun_.end()) continue;
    merge(begun->second, std::move(output));
    output = std::move(begun->second);
    begun_.erase(begun);
  }
}

}  // namespace quire
