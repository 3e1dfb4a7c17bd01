#include "attn-mpi/team_start.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>

#include "attn/attention/blas.h"
#include "attn/attention/machine.h"
#include "attn/base/error.h"
#include "attn/base/packing.h"
#include "attn/base/text.h"
#include "attn/base/version.h"
#include "attn/io/digest.h"
#include "attn/io/elements.h"
#include "attn/io/temp_files.h"

namespace attn {
namespace {

enum class Reply : std::uint8_t { same, missing, refused };

void pack_texts(std::string& out, const std::vector<std::string>& texts) {
  pack(out, texts.size());
  for (const std::string& text : texts) pack_text(out, text);
}

std::vector<std::string> unpack_texts(Unpacker& in) {
  std::vector<std::string> texts(in.number<std::size_t>());
  for (std::string& text : texts) text = in.text();
  return texts;
}

/// Results depend on all of these.
std::string program() {
  const Machine facts = machine();
  std::string text = std::string("attn ") + kVersion + ", kernels " + facts.kernels;
  try {
    text += ", " + blas_library().version;
  } catch (const Error&) {  // needed by some jobs only
  }
  return text + ", file " + read_file("/proc/self/exe").digest();
}

/// A digest of the size and of 64 pages, evenly spread from the first to the last.
std::string sample_of(const FileBytes& file) {
  constexpr std::size_t kPage = 4096, kPages = 64;
  std::string text;
  pack(text, file.size);
  for (std::size_t i = 0; i < kPages && file.size > 0; ++i) {
    const std::size_t last = file.size - std::min(file.size, kPage);
    const auto from =
        static_cast<std::size_t>(static_cast<double>(last) * static_cast<double>(i) / (kPages - 1));
    text.append(text_of(file.bytes().subspan(std::min(from, last), std::min(file.size, kPage))));
  }
  return digest_of(bytes_of(text));
}

/// A file of the start message.
struct SentFile {
  std::string path;
  bool is_mapped = false;
  std::size_t size = 0;
  std::string sample;
};

/// The beginning of the message that starts the others.
std::string pack_program() {
  std::string text;
  pack(text, true);
  pack_text(text, program());
  return text;
}

std::string pack_start(const TeamRun& run, const std::vector<SentFile>& files) {
  std::string text = pack_program();
  for (const auto* texts : {&run.computed, &run.requested, &run.by_rows}) pack_texts(text, *texts);
  pack(text, run.shows_progress);
  pack(text, files.size());
  for (const SentFile& file : files) {
    pack_text(text, file.path);
    pack(text, file.is_mapped);
    pack(text, file.size);
    pack_text(text, file.sample);
  }
  return text;
}

/// Compares this member's file with that of member 0.
std::pair<Reply, std::string> compared(const SentFile& file) {
  constexpr std::size_t kAny = std::numeric_limits<std::size_t>::max();
  try {
    const FileBytes own = read_file(file.path, kAny, FileAccess::map_part);
    if (own.size == file.size && sample_of(own) == file.sample) return {Reply::same, ""};
    return {Reply::refused, printable(file.path) + ": is another file here than on rank 0"};
  } catch (const Error& error) {
    return {error.kind() == ErrorKind::no_input ? Reply::missing : Reply::refused,
            error.lines().front()};
  }
}

std::string pack_reply(Reply reply, const std::string& reason, const Team& team) {
  std::string text;
  pack(text, reply);
  pack_text(text, reason.empty() ? "" : member_name(team) + ": " + reason);
  return text;
}

/// Why this program is not that of member 0, or "".
std::string difference_from(const std::string& other) {
  const std::string own = program();
  if (own == other) return "";
  return "runs another program (" + own + ") than rank 0 (" + other + "); results would differ";
}

std::string checked(const std::string& other, const std::vector<SentFile>& files,
                    const Team& team) {
  if (const std::string reason = difference_from(other); !reason.empty())
    return pack_reply(Reply::refused, reason, team);
  std::string missing;
  for (const SentFile& file : files) {
    if (!file.is_mapped) continue;
    const auto [reply, reason] = compared(file);
    if (reply == Reply::refused) return pack_reply(reply, reason, team);
    if (reply == Reply::missing && missing.empty()) missing = reason;
  }
  return pack_reply(missing.empty() ? Reply::same : Reply::missing, missing, team);
}

bool is_sent(const SentFile& file, bool all) { return all || !file.is_mapped; }

}  // namespace

std::string member_name(const Team& team) {
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  return "rank " + std::to_string(team.rank()) + " on " + printable(host);
}

void dismiss_team(Team& team) {
  std::string text;
  pack(text, false);
  broadcast_text(team, text);
}

std::string await_start(Team& team) {
  std::string start = broadcast_text(team, "");
  return Unpacker(start).number<bool>() ? start : "";
}

void start_team(Team& team, TeamState& state, const TeamRun& run, const TensorFiles& files,
                TeamReading reading) {
  std::vector<SentFile> sent;
  for (const auto& [path, file] : files.files())
    sent.push_back(
        {path, file.is_mapped, file.size, file.is_mapped ? sample_of(file) : std::string()});
  broadcast_text(team, pack_start(run, sent));
  state = TeamState::running;
  bool all = reading == TeamReading::root;
  for (const std::string& text : gather_texts(team, pack_reply(Reply::same, "", team))) {
    Unpacker in(text);
    const auto reply = in.number<Reply>();
    const std::string reason = in.text();
    if (reply == Reply::refused) throw Error(ErrorKind::io, reason);
    if (reply == Reply::missing && reading == TeamReading::each)
      throw Error(ErrorKind::no_input, reason + "; --mpi-read root reads it on rank 0");
    all = all || reply == Reply::missing;
  }
  team.broadcast(std::as_writable_bytes(std::span(&all, 1)));
  for (const SentFile& file : sent)
    if (is_sent(file, all)) {
      const FileBytes& bytes = files.files().at(file.path);
      // Only read: this is member 0.
      team.broadcast({const_cast<std::byte*>(bytes.data.get()), bytes.size});
    }
}

TeamRun join_team(Team& team, const std::string& start, TensorFiles& files) {
  Unpacker in(start);
  in.number<bool>();
  const std::string program = in.text();
  TeamRun run;
  for (auto* texts : {&run.computed, &run.requested, &run.by_rows}) *texts = unpack_texts(in);
  run.shows_progress = in.number<bool>();
  std::vector<SentFile> sent(in.number<std::size_t>());
  for (SentFile& file : sent) {
    file.path = in.text();
    file.is_mapped = in.number<bool>();
    file.size = in.number<std::size_t>();
    file.sample = in.text();
  }
  gather_texts(team, checked(program, sent, team));
  bool all = false;
  team.broadcast(std::as_writable_bytes(std::span(&all, 1)));
  for (const SentFile& file : sent) {
    if (!is_sent(file, all)) continue;
    files.budget().charge(file.size, printable(file.path));  // as add() does, after allocation
    files.budget().release(file.size);
    const std::shared_ptr<std::byte> bytes = allocate_bytes(file.size);
    team.broadcast({bytes.get(), file.size});
    files.add({.path = file.path, .data = bytes, .size = file.size});
  }
  return run;
}

namespace {

/// Member 0 does not get here if it has refused a reply. A member that it refuses may not go on: it
/// could fail for another reason before member 0 ends all.
void wait_for_start(Team& team) {
  bool starts = true;
  team.broadcast(std::as_writable_bytes(std::span(&starts, 1)));
}

}  // namespace

void start_batch_team(Team& team, TeamState& state, const std::string& options,
                      const std::string& manifest) {
  std::string text = pack_program();
  for (const std::string& part : {options, manifest, temp_token()}) pack_text(text, part);
  broadcast_text(team, text);
  state = TeamState::running;
  for (const std::string& reply : gather_texts(team, pack_reply(Reply::same, "", team))) {
    Unpacker in(reply);
    if (in.number<Reply>() != Reply::same) throw Error(ErrorKind::io, in.text());
  }
  wait_for_start(team);
}

std::string join_batch_team(Team& team, const std::string& start, const std::string& options) {
  Unpacker in(start);
  in.number<bool>();
  std::string reason = difference_from(in.text());
  if (in.text() != options && reason.empty())
    reason = "--base: is another file here than on rank 0";
  std::string manifest = in.text();
  set_temp_token(in.text(), team.rank());
  gather_texts(team, pack_reply(reason.empty() ? Reply::same : Reply::refused, reason, team));
  wait_for_start(team);
  return manifest;
}

}  // namespace attn
