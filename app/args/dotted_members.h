#pragma once
// vLLM's dotted flags: --speculative-config.method ngram is a member of the object that
// --speculative-config takes.

#include <string>
#include <string_view>
#include <vector>

namespace quire {

class Json;

class DottedMembers {
 public:
  // The members of a JSON object; false: it is none.
  bool set(const std::string& json);
  // "a.b" of the object; the value is JSON or a count (8k) where it can be read as that, and else a
  // text. A member that is given again is the last; lists and objects go on, as in vLLM, and "a.b+"
  // takes "x,y" as a list.
  void add(std::string_view path, const std::string& value);
  std::string json() const;  // {"a":{"b":…}}

 private:
  struct Member {
    std::string name;
    std::string json;  // of a leaf
    std::vector<Member> members = {};

    bool is_object() const { return !members.empty() || json == "{}"; }
  };
  static Member member_of(std::string name, const std::string& json);
  static std::vector<Member> members_of(const Json& object);
  static void put(std::vector<Member>& members, Member given);
  static void append(std::string& out, const std::vector<Member>& members);

  std::vector<Member> members_;
};

}  // namespace quire
