// In every program of a ThreadSanitizer build: reports that are none.

extern "C" const char* __tsan_default_suppressions() {
  // Asio's counters end with a fence, which TSan does not see; libzmq is not built with the
  // sanitizer.
  return "race:boost::asio::detail::ref_count_down\n"
         "called_from_lib:libzmq.so\n";
}
