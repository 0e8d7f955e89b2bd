#pragma once
// Strands that cost no allocation to copy. A strand over any_io_executor does not fit into another
// any_io_executor, and each of Asio's operations copies its executor more than once; one over the
// executor below does.

#include <boost/asio/any_io_executor.hpp>

namespace quire {

namespace asio = boost::asio;

// Of a pool's executor, which is an io_context's; any other gives a strand all the same.
asio::any_io_executor new_strand(const asio::any_io_executor& pool);

}  // namespace quire
