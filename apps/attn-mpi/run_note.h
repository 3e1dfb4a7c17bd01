// Notes that let a later run remove the temporary files of a run that was killed.
#pragma once

#include <string>

#include "attn/io/open_file.h"
#include "attn/io/temp_files.h"

namespace attn {

/// A file ".attn-run-NAME" next to the output NAME, locked (flock) while the run lasts, with the
/// token of its temporary files. If there is one that nobody has locked, its run was killed: the
/// constructor removes the temporary files of that run. Where files cannot be locked, there is no
/// note. Errors: busy, if another run is writing the output.
class RunNote {
 public:
  explicit RunNote(const std::string& output);
  RunNote(const RunNote&) = delete;
  RunNote& operator=(const RunNote&) = delete;
  ~RunNote();

 private:
  TempPath path_;
  Descriptor file_;
};

}  // namespace attn
