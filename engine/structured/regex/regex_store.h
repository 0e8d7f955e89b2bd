#pragma once
// Regular expressions over bytes as hash-consed nodes, closed under "and" and "not". A node is also
// the state of its own automaton: step(node, byte) is the derivative, what may follow once that
// byte was read, worked out on first use and kept. Not thread-safe; who shares a store locks.

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/structured/budget.h"
#include "engine/structured/regex/byte_set.h"

namespace quire::structured {

using RegexId = std::uint32_t;
inline constexpr RegexId kNothing = 0;  // no text at all
inline constexpr RegexId kEmpty = 1;    // the empty text
inline constexpr std::uint32_t kUnbounded = 0xffffffff;

// Content hash: the same expression has the same one in every store of the process.
struct RegexHash {
  std::uint64_t low = 0, high = 0;
  bool operator==(const RegexHash&) const = default;
};

class RegexStore {
 public:
  RegexStore(Meter& meter, const GrammarLimits& limits);

  RegexId bytes(const ByteSet& set);
  RegexId literal(std::string_view text);
  RegexId concat(RegexId first, RegexId second);
  RegexId concat(std::initializer_list<RegexId> parts);
  RegexId any_of(std::vector<RegexId> parts);
  RegexId all_of(std::vector<RegexId> parts);
  RegexId complement(RegexId of);
  RegexId repeat(RegexId of, std::uint32_t min, std::uint32_t max = kUnbounded);
  RegexId optional(RegexId of) { return any_of({kEmpty, of}); }
  // One of the texts; shares their prefixes, so that thousands cost little.
  RegexId literals(std::vector<std::string> texts);
  // Digits of a multiple of `divisor` · 10^-places; what was read so far leaves `remainder`.
  enum class Digits : std::uint8_t { integer, before_point, after_point, fraction };
  RegexId multiple(std::uint64_t divisor, int places, std::uint64_t remainder = 0,
                   Digits where = Digits::before_point);
  // A row of values without repetition, from its first value to what closes it. What has been
  // written so far is part of the state, so that only the sets that come up cost anything.
  static constexpr std::size_t kMostDistinct = 64;
  struct DistinctRow {
    std::vector<RegexId>
        values;  // at most kMostDistinct; none begins another one and `comma` or `close`
    std::vector<std::uint64_t>
        allowed;  // values as bits, by index; the last holds for all further ones
    std::uint32_t min = 1, max = kUnbounded;
    RegexId comma = kEmpty, close = kEmpty;
  };
  RegexId distinct(DistinctRow row);

  bool nullable(RegexId id) const { return nodes_[id].nullable; }
  // Nothing but the empty text is left.
  bool finished(RegexId id) const { return id == kEmpty; }
  // False: no text matches.
  bool alive(RegexId id);
  // One of the shortest texts of an expression that is alive.
  std::string example(RegexId id);
  // kNothing as soon as nothing can match.
  RegexId step(RegexId id, std::uint8_t byte) {
    const Node& node = nodes_[id];
    if (node.row != kNoRow) {
      const RegexId known = rows_[node.row + (*maps_[node.map])[byte]];
      if (known != kUnknown && (known & kRaw) == 0) return known;
    }
    return step_slow(id, byte);
  }
  // Bytes that may come next.
  const ByteSet& first_bytes(RegexId id);
  bool matches(RegexId id, std::string_view text);
  RegexHash hash(RegexId id) const { return nodes_[id].hash; }
  std::size_t size() const { return nodes_.size(); }
  std::size_t memory_bytes() const;

 private:
  enum class Kind : std::uint8_t {
    nothing,
    empty,
    bytes,
    concat,
    any_of,
    all_of,
    complement,
    repeat,
    multiple,
    distinct
  };
  enum class Life : std::uint8_t { unknown, alive, dead };
  using ClassMap = std::array<std::uint8_t, 256>;
  static constexpr std::uint32_t kNoRow = 0xffffffff;
  static constexpr std::uint32_t kUnknown = 0xffffffff;
  static constexpr std::uint32_t kRaw = 0x80000000;  // derivative known, its life not asked for

  struct Node {
    Kind kind;
    bool nullable;
    bool simple;  // without "and", "not", "multiple": alive unless kNothing
    Life life = Life::unknown;
    std::uint32_t a = 0, b = 0;      // children, or where they are in children_
    std::uint32_t min = 0, max = 0;  // repeat; distinct: the written values, as bits
    std::uint32_t row = kNoRow;
    std::uint16_t map = 0;
    std::uint32_t first = kNoRow;  // index into first_sets_
    RegexHash hash = {};
  };
  struct HashOf {
    std::size_t operator()(const RegexHash& hash) const { return hash.low; }
  };

  RegexId intern(Node node, RegexHash hash);
  RegexHash mix(Kind kind, std::initializer_list<std::uint64_t> words) const;
  std::span<const RegexId> children(const Node& node) const;
  RegexId with_children(Kind kind, const std::vector<RegexId>& parts, bool nullable);
  bool starts_with_bytes(RegexId id, std::uint32_t& set, RegexId& rest) const;
  void merge_byte_heads(std::vector<RegexId>& parts);

  RegexId step_slow(RegexId id, std::uint8_t byte);
  RegexId derivative(RegexId id, std::uint8_t byte);
  RegexId derive(RegexId id, std::uint8_t byte);
  RegexId derive_many(RegexId id, std::uint8_t byte);
  RegexId derive_multiple(const Node& node, std::uint8_t byte);
  RegexId distinct_rest(std::uint32_t row, std::uint64_t written);
  RegexId spelled_out(RegexId distinct);
  void make_row(RegexId id);
  struct Partition;
  void refine(RegexId id, Partition& partition);
  bool search_alive(RegexId id);
  bool known_life(RegexId id, bool is_alive);
  RegexId after_class(RegexId id, unsigned wanted);

  // Nested expressions are walked by recursion: this bounds it.
  class Nesting {
   public:
    explicit Nesting(RegexStore& store) : depth_(store.depth_) {
      if (++depth_ > kMaxDepth) {
        --depth_;
        throw GrammarFailure(GrammarErrorKind::limit, "a regular expression is nested too deeply");
      }
    }
    ~Nesting() { --depth_; }

   private:
    static constexpr int kMaxDepth = 4'000;
    int& depth_;
  };

  Meter& meter_;
  const GrammarLimits& limits_;
  int depth_ = 0;
  std::vector<Node> nodes_;
  std::vector<RegexId> children_;
  std::vector<ByteSet> sets_;
  struct Multiple {
    std::uint64_t divisor, remainder;
    int places;  // decimal places that are still to come
    Digits where;
  };
  std::vector<Multiple> multiples_;
  struct Distinct {
    DistinctRow row;
    RegexHash hash;
    bool always_ends;  // whatever was written
  };
  std::vector<Distinct> distincts_;
  std::vector<std::uint32_t> rows_;
  std::vector<std::unique_ptr<const ClassMap>> maps_;
  std::vector<std::uint16_t> map_sizes_;
  std::vector<ByteSet> first_sets_;
  std::unordered_map<RegexHash, RegexId, HashOf> by_hash_;
  std::unordered_map<RegexHash, std::uint16_t, HashOf> map_ids_;
};

}  // namespace quire::structured
