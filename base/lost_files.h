#pragma once
// Files that are mapped (base/mapped_file.h) and cannot be read any more.

namespace quire {

// From here on the process ends with this exit code and a sentence on stderr that names the file,
// where one of them was cut short or its disk failed. (SIGBUS; what did not come from a mapped file
// ends as it would have.)
void end_on_lost_files(int exit_code);

}  // namespace quire
