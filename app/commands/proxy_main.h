#pragma once

namespace quire {

int proxy_main(int argc, const char* const* argv);

}  // namespace quire
