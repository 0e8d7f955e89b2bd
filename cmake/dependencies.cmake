# Debian 12 packages, one target each, so that a folder's CMakeLists.txt names what it really uses.
find_package(Threads REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(Boost 1.81 EXACT REQUIRED COMPONENTS json)
find_package(fmt REQUIRED)
find_package(CLI11 REQUIRED)
find_package(simdjson REQUIRED)
find_package(prometheus-cpp CONFIG REQUIRED COMPONENTS core)
find_package(Protobuf REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(pcre2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(utf8proc REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(zmq REQUIRED IMPORTED_TARGET libzmq)

# Asio and Beast are compiled once, in base/boost_impl.cpp; every other file only sees declarations.
add_library(quire_boost INTERFACE)
target_compile_definitions(quire_boost INTERFACE
  BOOST_ASIO_SEPARATE_COMPILATION BOOST_BEAST_SEPARATE_COMPILATION BOOST_ASIO_NO_DEPRECATED)
target_link_libraries(quire_boost INTERFACE Boost::boost Boost::json OpenSSL::SSL OpenSSL::Crypto Threads::Threads)
add_library(quire::boost ALIAS quire_boost)
