#pragma once
// One connection from accept to close: requests, one after the other.

#include <boost/asio/any_io_executor.hpp>
#include <memory>

#include "server/app_state.h"
#include "server/http/byte_stream.h"

namespace quire {

awaitable<void> serve_connection(asio::any_io_executor strand, std::unique_ptr<ByteStream> stream,
                                 AppState& app, bool probes_only);

}  // namespace quire
