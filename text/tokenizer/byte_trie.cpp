#include "text/tokenizer/byte_trie.h"

#include <algorithm>

namespace quire {

ByteTrie::ByteTrie(std::vector<std::pair<std::string_view, std::int32_t>> entries)
    : nodes_(1), root_children_(256, kNone) {
  std::stable_sort(entries.begin(), entries.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  // Breadth first, so that the children of a node stand side by side. A group is the entries that
  // share the node's path.
  struct Group {
    std::size_t begin, end;
    std::uint32_t depth;
  };
  std::vector<Group> groups{{0, entries.size(), 0}};
  for (Node node = 0; node < groups.size(); ++node) {
    auto [begin, end, depth] = groups[node];
    for (; begin < end && entries[begin].first.size() == depth; ++begin) {
      nodes_[node].value = entries[begin].second;
    }
    nodes_[node].children.first = static_cast<Node>(nodes_.size());
    while (begin < end) {
      const auto label = static_cast<unsigned char>(entries[begin].first[depth]);
      const auto first = begin;
      while (begin < end && static_cast<unsigned char>(entries[begin].first[depth]) == label)
        ++begin;
      if (node == kRoot) root_children_[label] = static_cast<Node>(nodes_.size());
      ++nodes_[node].children.count;
      nodes_.push_back({{}, label, -1});
      groups.push_back({first, begin, depth + 1});
    }
  }
  if (nodes_.front().children.count == 1) only_first_ = static_cast<char>(nodes_[1].label);
}

ByteTrie::Match ByteTrie::longest_prefix(std::string_view text, Node from) const {
  Match best;
  Node node = from;
  for (std::size_t i = 0; i < text.size(); ++i) {
    node = child(node, text[i]);
    if (node == kNone) break;
    if (nodes_[node].value >= 0) best = {i + 1, nodes_[node].value};
  }
  return best;
}

ByteTrie::Node ByteTrie::find(std::string_view text) const {
  Node node = kRoot;
  for (const char byte : text) {
    if (node == kNone) break;
    node = child(node, byte);
  }
  return node;
}

}  // namespace quire
