#include "base/strand.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/strand.hpp>

namespace quire {

asio::any_io_executor new_strand(const asio::any_io_executor& pool) {
  if (const auto* const bare = pool.target<asio::io_context::executor_type>()) {
    return asio::make_strand(*bare);
  }
  return asio::make_strand(pool);
}

}  // namespace quire
