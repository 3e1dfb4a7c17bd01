#include "attn/batch/manifest.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <thread>
#include <utility>

#include "attn/base/error.h"
#include "attn/base/text.h"
#include "attn/base/version.h"
#include "attn/batch/jobs.h"
#include "attn/io/json_parse.h"
#include "attn/io/json_write.h"
#include "attn/io/open_file.h"
#include "attn/io/output_path.h"
#include "attn/io/temp_files.h"

namespace attn {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kFirstLineStart = "{\"schema\":\"attn-batch/1\"";
constexpr std::string_view kLineStart = "{\"job\":", kRunStart = "{\"schema\":";

void require_regular(const Descriptor& file, const std::string& path) {
  struct stat info {};
  if (fstat(file.get(), &info) != 0) throw system_error(ErrorKind::io, path, errno);
  if (!S_ISREG(info.st_mode))
    throw Error(ErrorKind::cannot_create, printable(path) + ": is not a regular file");
}

[[noreturn]] void throw_locked(const std::string& path) {
  throw Error(ErrorKind::busy, printable(path) + ": another run is writing this manifest");
}

/// Whether a file system, such as NFS without its lock service, has no locks. Each manifest has one
/// writer by construction; a lock only detects a second run of the same shard.
bool lacks_locks(int code) {
  return code == ENOLCK || code == EOPNOTSUPP || code == ENOSYS || code == EINVAL;
}

/// False if another run has the lock.
bool lock_now(const Descriptor& file, const std::string& path) {
  int locked = 0;
  do locked = flock(file.get(), LOCK_EX | LOCK_NB);
  while (locked != 0 && errno == EINTR);
  if (locked == 0 || lacks_locks(errno)) return true;
  if (errno != EWOULDBLOCK) throw system_error(ErrorKind::io, path, errno);
  return false;
}

struct LockedFile {
  Descriptor file;
  bool is_new = false;
};

/// Does not create the target of a symbolic link.
LockedFile open_locked(const std::string& path) {
  constexpr int kFlags = O_RDWR | O_APPEND | O_NOCTTY;
  LockedFile opened{open_output(path, kFlags | O_CREAT | O_EXCL, 0666), true};
  if (!opened.file.is_open() && errno == EEXIST) {
    opened = {open_output(path, kFlags), false};
    if (!opened.file.is_open() && errno == ENOENT)
      throw Error(ErrorKind::cannot_create,
                  printable(path) + ": is a link to a file that does not exist");
  }
  if (!opened.file.is_open()) throw system_error(ErrorKind::cannot_create, path, errno);
  require_regular(opened.file, path);
  // A worker process of a killed run, or a run that is refused because the new file is empty, can
  // hold the lock for a moment.
  constexpr int kAttempts = 50;
  for (int attempt = 0; !lock_now(opened.file, path); ++attempt) {
    if (attempt == kAttempts) throw_locked(path);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return opened;
}

/// The result is not open if the file does not exist.
Descriptor open_read_only(const std::string& path) {
  Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!file.is_open() && errno != ENOENT) throw system_error(ErrorKind::no_input, path, errno);
  if (file.is_open()) require_regular(file, path);
  return file;
}

/// Whether the file is a manifest, also if it is empty or ends within its first line.
bool is_manifest(const Descriptor& file, const std::string& path) {
  std::string start(kFirstLineStart.size(), ' ');
  ssize_t count = 0;
  do count = pread(file.get(), start.data(), start.size(), 0);
  while (count < 0 && errno == EINTR);
  if (count < 0) throw system_error(ErrorKind::io, path, errno);
  start.resize(static_cast<std::size_t>(count));
  return kFirstLineStart.starts_with(start);
}

void truncate_to(const Descriptor& file, const std::string& path, std::size_t size) {
  int code = 0;
  do code = ftruncate(file.get(), static_cast<off_t>(size)) == 0 ? 0 : errno;
  while (code == EINTR);
  if (code != 0) throw system_error(ErrorKind::io, path, code);
}

/// {"job":"a\"b.json",... -> "a\"b.json" with its quotes; empty for any other line.
std::string_view quoted_job(std::string_view line) {
  if (!line.starts_with(kLineStart)) return {};
  const std::string_view rest = line.substr(kLineStart.size());
  for (std::size_t at = 1; at < rest.size(); ++at) {
    if (rest[at] == '\\')
      ++at;
    else if (rest[at] == '"')
      return rest.substr(0, at + 1);
  }
  return {};
}

/// Null if the line is damaged, or takes more memory than any line that attn writes.
Json parsed(std::string_view line) {
  constexpr std::size_t kMaxMemory = 4 << 20;
  ReadBudget budget(kMaxMemory);
  MemoryCharge charge(&budget, "manifest");
  try {
    return parse_json(line, "manifest", charge);
  } catch (const Error&) {
    return {};
  }
}

std::string text_in(const Json& json, const std::string& key) {
  const Json* member = json.find(key);
  const auto text = member ? member->get<std::string>() : nullptr;
  return text ? *text : "";
}

/// The members of an object that are strings.
std::vector<FileDigest> digests_in(const Json& json, const std::string& key) {
  std::vector<FileDigest> digests;
  const Json* member = json.find(key);
  const auto object = member ? member->get<JsonObject>() : nullptr;
  if (object == nullptr) return digests;
  for (const auto& [file, digest] : *object)
    if (const auto text = digest.get<std::string>())
      digests.emplace_back(name_of_text(file), *text);
  return digests;
}

/// The first file whose digest differs from the recorded one, or that cannot be read.
std::optional<std::string> changed_file(const std::vector<FileDigest>& digests,
                                        const Manifest::DigestOf& digest_of) {
  for (const auto& [file, digest] : digests) {
    try {
      if (digest_of(file) != digest) return file;
    } catch (const Error&) {
      return file;
    }
  }
  return std::nullopt;
}

/// Calls act(line) for each complete line. Returns their size.
template <class Act>
std::size_t for_each_line(std::string_view text, Act act) {
  std::size_t start = 0;
  for (std::size_t end; (end = text.find('\n', start)) != std::string_view::npos; start = end + 1)
    act(text.substr(start, end - start));
  return start;
}

}  // namespace

Manifest::Manifest(const std::string& path, ManifestUse use, RunDescription run, bool durable,
                   std::size_t max_bytes)
    : path_(path), run_(std::move(run)), durable_(durable) {
  if (use != ManifestUse::read_only) claim_.emplace(claim_of(path));
  LockedFile opened =
      use == ManifestUse::read_only ? LockedFile{open_read_only(path)} : open_locked(path);
  file_ = std::move(opened.file);
  if (!file_.is_open()) return;
  if (!is_manifest(file_, path_))
    throw Error(use == ManifestUse::resume || use == ManifestUse::read_only
                    ? ErrorKind::data
                    : ErrorKind::cannot_create,
                printable(path) + ": is not a manifest of attn batch");
  earlier_ = read_file(path_, max_bytes,
                       use == ManifestUse::read_only ? FileAccess::growing : FileAccess::read);
  if (use == ManifestUse::create && !opened.is_new && earlier_.size == 0)
    throw Error(ErrorKind::cannot_create,
                printable(path) + ": is empty, not a manifest; --force or --resume uses it");
  outputs_unread_ = {earlier_.text()};
  const std::size_t complete_lines = read_earlier();
  if (use == ManifestUse::create && has_finished_jobs())
    throw Error(ErrorKind::cannot_create,
                printable(path) +
                    ": already exists; --resume and --no-clobber continue "
                    "it, --force replaces it");
  if (use == ManifestUse::read_only) return;
  const bool continues = use == ManifestUse::resume;
  if (!continues) lines_.clear();
  truncate_to(file_, path_, continues ? complete_lines : 0);
  std::string line = std::string(kFirstLineStart) + ",\"program\":\"attn " + kVersion +
                     "\",\"run\":\"" + temp_token() + "\"";
  if (run_.shard.count > 1) line += ",\"shard\":\"" + text_of(run_.shard) + "\"";
  if (run_.bundle > 0) line += ",\"bundle\":" + std::to_string(run_.bundle);
  if (run_.jobs) line += ",\"jobs\":" + std::to_string(*run_.jobs);
  if (!run_.list.empty()) line += ",\"list\":\"" + run_.list + "\"";
  append(line + "}\n");
  if (durable_) sync_folder_of(output_entry(follow_links(path_)), path_);
}

std::size_t Manifest::read_earlier() {
  return for_each_line(earlier_.text(), [&](std::string_view line) {
    if (const std::string_view job = quoted_job(line); !job.empty())
      lines_.insert_or_assign(job, line);
    else if (line.starts_with(kRunStart))
      runs_.insert(text_in(parsed(line), "run")), run_lines_.push_back(line);
  });
}

namespace {

/// The files in `folder` that are named as manifests, sorted.
std::vector<std::string> manifests_in(const std::string& folder) {
  std::error_code error;
  std::vector<std::string> paths;
  for (fs::directory_iterator entry(folder, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with("manifest.") && name.ends_with(".ndjson"))
      paths.push_back(entry->path().string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace

void Manifest::read_shards(const std::string& folder, std::size_t max_bytes) {
  std::error_code error;
  for (const std::string& path : manifests_in(folder))
    if (!fs::equivalent(path, path_, error))
      read_shard(path, max_bytes - std::min(max_bytes, bytes_read()));
}

std::size_t Manifest::bytes_read() const {
  std::size_t bytes = earlier_.size;
  for (const FileBytes& shard : shards_) bytes += shard.size;
  return bytes;
}

void Manifest::read_shard(const std::string& path, std::size_t max_bytes) {
  try {
    const Descriptor file = open_read_only(path);
    if (!file.is_open() || !is_manifest(file, path)) return;
    shards_.push_back(read_file(path, max_bytes, FileAccess::growing));
  } catch (const Error& error) {
    if (!left_out_) left_out_ = error;
    return;
  }
  outputs_unread_.push_back(shards_.back().text());
  std::unordered_map<std::string_view, std::string_view> lines;
  for_each_line(shards_.back().text(), [&](std::string_view line) {
    if (const std::string_view job = quoted_job(line); !job.empty())
      lines.insert_or_assign(job, line);
    else if (line.starts_with(kRunStart))
      run_lines_.push_back(line);
  });
  for (const auto& [job, line] : lines)
    if (!lines_.try_emplace(job, line).second) further_lines_.emplace(job, line);
}

bool Manifest::has_output(const std::string& output) const {
  const std::lock_guard lock(outputs_mutex_);
  for (const std::string_view text : std::exchange(outputs_unread_, {}))
    for_each_line(text, [&](std::string_view line) {
      for (auto& [file, digest] : digests_in(parsed(line), "outputs")) {
        if (const std::string bundle = bundle_in(file); !bundle.empty()) outputs_.insert(bundle);
        outputs_.insert(std::move(file));
      }
    });
  return outputs_.contains(output);
}

bool Manifest::has_finished_jobs() const {
  // In a JSON string the quotes would be escaped, so no file name can contain this text.
  return std::any_of(lines_.begin(), lines_.end(), [](const auto& entry) {
    return entry.second.find("\"status\":\"done\"") != std::string_view::npos;
  });
}

std::vector<std::string_view> Manifest::lines_about(std::string_view quoted_job) const {
  const auto first = lines_.find(quoted_job);
  if (first == lines_.end()) return {};
  std::vector<std::string_view> lines = {first->second};
  const auto [begin, end] = further_lines_.equal_range(quoted_job);
  for (auto further = begin; further != end; ++further) lines.push_back(further->second);
  return lines;
}

Manifest::EarlierRun Manifest::earlier_run(const std::string& job, const DigestOf& digest_of_input,
                                           const DigestOf& digest_of_output) const {
  std::optional<EarlierRun> unfinished;
  for (const std::string_view line : lines_about(json_quoted(text_of_name(job)))) {
    EarlierRun run = run_in_line(line, digest_of_input, digest_of_output);
    if (!run.outputs.empty()) return run;
    if (!unfinished) unfinished = std::move(run);
  }
  return unfinished ? std::move(*unfinished) : EarlierRun{};
}

Manifest::EarlierRun Manifest::run_in_line(std::string_view line, const DigestOf& digest_of_input,
                                           const DigestOf& digest_of_output) const {
  const Json record = parsed(line);
  const std::string status = text_in(record, "status");
  if (status == name_of(Status::removed)) return {};
  if (status == name_of(Status::failed)) return {{}, Change::error};
  if (status != name_of(Status::done)) return {{}, Change::manifest};
  if (text_in(record, "options") != run_.options) return {{}, Change::options};
  if (auto file = changed_file(digests_in(record, "inputs"), digest_of_input))
    return {{}, Change::input, std::move(*file)};
  std::vector<FileDigest> outputs = digests_in(record, "outputs");
  if (outputs.empty()) return {{}, Change::manifest};
  if (auto file = changed_file(outputs, digest_of_output))
    return {{}, Change::output, std::move(*file)};
  const Json* const statistics = record.find("statistics");
  return {std::move(outputs), Change::none, {}, statistics ? to_json(*statistics) : ""};
}

namespace {

/// A number of at least 0 in an object.
std::optional<std::size_t> count_in(const Json& json, const std::string& key) {
  const Json* const member = json.find(key);
  const auto number = member ? member->get<std::int64_t>() : nullptr;
  if (number == nullptr || *number < 0) return std::nullopt;
  return static_cast<std::size_t>(*number);
}

/// A job as a line describes it; nothing if the line is damaged.
std::optional<Outcome> job_in_line(std::string_view line) {
  const Json record = parsed(line);
  const std::string status = text_in(record, "status");
  Outcome job{.number = count_in(record, "item").value_or(0),
              .name = name_of_text(text_in(record, "job"))};
  if (status == name_of(Status::failed))
    job.status = Status::failed;
  else if (status == name_of(Status::removed))
    job.status = Status::removed;
  else if (status != name_of(Status::done))
    return std::nullopt;
  job.outputs = digests_in(record, "outputs");
  job.code = static_cast<int>(std::min<std::size_t>(count_in(record, "code").value_or(0), 255));
  const Json* const error = record.find("error");
  if (const auto messages = error ? error->get<JsonArray>() : nullptr)
    for (const Json& message : *messages)
      if (const auto text = message.get<std::string>()) job.error.push_back(*text);
  return job;
}

}  // namespace

void Manifest::for_each_job(const std::function<void(Outcome)>& act) const {
  for (const auto& [quoted, first_line] : lines_) {
    std::optional<Outcome> job = job_in_line(first_line);
    const auto [begin, end] = further_lines_.equal_range(quoted);
    for (auto further = begin; further != end && !(job && job->status == Status::done); ++further)
      if (std::optional<Outcome> other = job_in_line(further->second))
        if (!job || other->status == Status::done) job = std::move(other);
    if (job) act(std::move(*job));
  }
}

std::vector<RunDescription> Manifest::runs() const {
  std::vector<RunDescription> runs;
  for (const std::string_view line : run_lines_) {
    const Json record = parsed(line);
    Shard shard = valid_shard(text_in(record, "shard")).value_or(Shard());
    shard.block = std::clamp<std::size_t>(count_in(record, "bundle").value_or(1), 1, kMaxBundle);
    runs.push_back(
        {.shard = shard, .jobs = count_in(record, "jobs"), .list = text_in(record, "list")});
  }
  return runs;
}

namespace {

/// The jobs of a bundle of the first run in a manifest, 0 without bundles. Nothing if the file
/// cannot be read or its first line is damaged.
std::optional<std::size_t> bundle_size_in(const std::string& path) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  std::string line(4096, ' ');
  const ssize_t count = file.is_open() ? pread(file.get(), line.data(), line.size(), 0) : -1;
  if (count <= 0) return std::nullopt;
  line.resize(static_cast<std::size_t>(count));
  const std::size_t end = line.find('\n');
  if (end == std::string::npos || !line.starts_with(kFirstLineStart)) return std::nullopt;
  const Json record = parsed(std::string_view(line).substr(0, end));
  if (record.find("program") == nullptr) return std::nullopt;
  return count_in(record, "bundle").value_or(0);
}

std::string bundle_flag(std::size_t size) {
  return size == 0 ? "no --bundle" : "--bundle " + std::to_string(size);
}

}  // namespace

void Manifest::require_bundle_size(const std::string& path, const std::string& folder,
                                   std::size_t bundle) {
  std::vector<std::string> paths = {path};
  if (!folder.empty())
    for (std::string& other : manifests_in(folder)) paths.push_back(std::move(other));
  for (const std::string& manifest : paths) {
    const std::optional<std::size_t> earlier = bundle_size_in(manifest);
    if (earlier && *earlier != bundle)
      throw Error(ErrorKind::cannot_create, printable(manifest) + ": its run had " +
                                                bundle_flag(*earlier) + ", this one has " +
                                                bundle_flag(bundle) +
                                                "; use the same, or another --out-dir");
  }
}

void Manifest::require_unlocked(const std::string& path) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (file.is_open() && flock(file.get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    throw_locked(path);
}

void Manifest::add(std::span<const Outcome> outcomes) {
  std::string text;
  for (const Outcome& outcome : outcomes)
    if (outcome.status != Status::skipped) text += line_of(outcome);
  append(text);
}

std::string Manifest::line_of(const Outcome& outcome) const {
  return outcome_json(outcome, run_.options) + "\n";
}

void Manifest::add_job_count(std::size_t jobs) {
  append(std::string(kFirstLineStart) + ",\"run\":\"" + temp_token() +
         "\",\"jobs\":" + std::to_string(jobs) + "}\n");
}

void Manifest::close() {
  if (!file_.close()) throw system_error(ErrorKind::io, path_, errno);
}

/// Removes the last `written` bytes, an incomplete line, if possible.
void Manifest::fail_to_write(int code, std::size_t written) {
  struct stat info {};
  if (written > 0 && fstat(file_.get(), &info) == 0 &&
      ftruncate(file_.get(), info.st_size - static_cast<off_t>(written)) != 0)
    errno = code;  // the next run removes it
  throw system_error(ErrorKind::io, path_, code);
}

void Manifest::append(std::string_view text) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t count = write(file_.get(), text.data() + done, text.size() - done);
    if (count > 0)
      done += static_cast<std::size_t>(count);
    else if (errno != EINTR)
      fail_to_write(errno, done);
  }
  if (durable_ && fdatasync(file_.get()) != 0) throw system_error(ErrorKind::io, path_, errno);
}

}  // namespace attn
