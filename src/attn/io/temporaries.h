// The names of unfinished outputs, for the moment in which a signal ends the program.
#pragma once

#include <set>
#include <string>

namespace attn {

/// ".attn-tmp-PID-TOKEN-N": a new one each time. TOKEN is random and this run's own.
std::string new_temporary_name();
const std::string& temporaries_token();

/// Removes what runs that are known to have ended (by SIGKILL, say) left in a folder and below it,
/// save in folders that are closed to us.
void remove_leftovers(const std::string& folder, const std::set<std::string>& tokens);

/// From now on SIGHUP, SIGINT, SIGQUIT, SIGTERM and SIGXCPU first remove every unfinished output
/// and then do what they always do, so that the shell sees 130 or 143; a signal that was ignored
/// stays ignored (nohup). SIGXFSZ is ignored, which makes a file-size limit an ordinary write
/// error. To be called once, at the start.
void remove_temporaries_on_signals();

/// Removes every unfinished output now, and the folders made for them, before an end of the program
/// that runs no destructors.
void remove_temporaries();

/// While one lives the program does not end by a signal (for up to a fifth of a second): a thread
/// holds it while a file appears or gets its final name, so that nothing appears unseen. Once the
/// program is ending, to ask for one is to wait for the end.
class SignalShelter {
 public:
  SignalShelter();
  SignalShelter(const SignalShelter&) = delete;
  SignalShelter& operator=(const SignalShelter&) = delete;
  ~SignalShelter();
};

/// The name of a file that a signal has to remove, or of a folder where it is empty then; forgotten
/// at the end of its life. Up to 1024 at a time are remembered: with more, the rest would outlive a
/// signal.
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
