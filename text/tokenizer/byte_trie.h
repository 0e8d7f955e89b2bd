#pragma once
// A set of byte strings with a number each, walked one byte at a time.

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace quire {

class ByteTrie {
 public:
  using Node = std::uint32_t;
  static constexpr Node kRoot = 0;
  static constexpr Node kNone = UINT32_MAX;

  ByteTrie() : ByteTrie(std::vector<std::pair<std::string_view, std::int32_t>>{}) {}
  // Of equal strings the last one's value stays. Values are not negative.
  explicit ByteTrie(std::vector<std::pair<std::string_view, std::int32_t>> entries);

  Node child(Node node, char byte) const {
    const auto label = static_cast<unsigned char>(byte);
    if (node == kRoot) return root_children_[label];
    const Range range = nodes_[node].children;
    for (Node at = range.first; at < range.first + range.count; ++at) {
      if (nodes_[at].label == label) return at;
    }
    return kNone;
  }

  std::int32_t value(Node node) const { return nodes_[node].value; }  // -1: no string ends here

  struct Match {
    std::size_t length = 0;
    std::int32_t value = -1;
  };
  // The longest string that `text` starts with; the walk starts below `from`.
  Match longest_prefix(std::string_view text, Node from = kRoot) const;
  Node find(std::string_view text) const;  // the node at the end of this path
  // Where a string may begin, at `from` or behind it; npos: nowhere.
  std::size_t first_start(std::string_view text, std::size_t from) const {
    if (only_first_) return text.find(*only_first_, from);
    for (; from < text.size(); ++from) {
      if (root_children_[static_cast<unsigned char>(text[from])] != kNone) return from;
    }
    return text.npos;
  }

 private:
  struct Range {
    Node first = 0;
    std::uint16_t count = 0;
  };
  struct NodeData {
    Range children;
    unsigned char label = 0;
    std::int32_t value = -1;
  };
  std::vector<NodeData> nodes_;
  std::vector<Node> root_children_;  // [256]
  std::optional<char> only_first_;   // the byte that all strings begin with
};

}  // namespace quire
