#pragma once
// Which names a server on a loopback address answers to. A web page can point a name of its own at
// 127.0.0.1 (DNS rebinding); its browser then takes this server for the page's own. The Host header
// still says the page's name.

#include <string>
#include <string_view>
#include <vector>

namespace quire {

class HostGuard {
 public:
  // Guards a server that asks for no key and listens on a loopback address; others answer to every
  // name. `allowed` are names beside those that stand for this machine; * is all.
  HostGuard(std::string_view listens_on, bool asks_for_key, std::vector<std::string> allowed);

  // Of a Host header's value: an address, a word without a dot (no stranger can own one: localhost,
  // a container's name), this machine's name, or an allowed one.
  bool allows(std::string_view host) const;

 private:
  bool guards_;
  std::vector<std::string> names_;
};

}  // namespace quire
