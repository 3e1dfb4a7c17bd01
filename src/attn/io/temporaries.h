// The names of unfinished outputs, for the moment in which a signal ends the program.
#pragma once

#include <string>

namespace attn {

/// From now on SIGHUP, SIGINT, SIGQUIT, SIGTERM and SIGXCPU first remove every unfinished output
/// and then do what they always do, so that the shell sees 130 or 143; a signal that was ignored
/// stays ignored (nohup). SIGXFSZ is ignored, which makes a file-size limit an ordinary write
/// error. To be called once, at the start.
void remove_temporaries_on_signals();

/// The name of a file that a signal has to remove; forgotten at the end of its life. Up to 64 at a
/// time are remembered: with more, the rest would outlive a signal.
class TemporaryName {
 public:
  explicit TemporaryName(std::string path);
  TemporaryName(const TemporaryName&) = delete;
  TemporaryName& operator=(const TemporaryName&) = delete;
  ~TemporaryName();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int slot_;  ///< in the table, or -1
};

}  // namespace attn
