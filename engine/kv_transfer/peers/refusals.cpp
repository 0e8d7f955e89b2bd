#include "engine/kv_transfer/peers/refusals.h"

#include "base/log.h"

namespace quire {

void log_refused(std::string_view because, std::string_view from) {
  constexpr int kLinesPerSecond = 8;
  static log::Limit lines(kLinesPerSecond);
  if (!lines.allows()) return;
  if (from.empty()) return log::warn("kv_transfer.refused", {{"because", because}});
  log::warn("kv_transfer.refused", {{"because", because}, {"from", from}});
}

}  // namespace quire
