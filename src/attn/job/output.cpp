#include "attn/job/output.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <filesystem>
#include <set>

#include "attn/core/attention.h"
#include "attn/core/inputs.h"
#include "attn/io/csv.h"
#include "attn/io/descriptor.h"
#include "attn/job/result_format.h"
#include "attn/tensor/error.h"

namespace attn {
namespace fs = std::filesystem;
namespace {

bool is_folder_there(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

bool is_folder(const std::string& path) { return path.back() == '/' || is_folder_there(path); }

/// "a/b" of "a/b/c" and of "a/b/c/"; "" where the folder is that in which we are.
std::string parent_of(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return fs::path(path).parent_path().string();
}

[[noreturn]] void usage(const std::string& text) { throw Error(ErrorKind::usage, text); }

/// A word before '=' is an output's name; anything with a '/' or '.' in it is part of a path.
std::size_t name_length(const std::string& typed) {
  const std::size_t equals = typed.find('=');
  const bool word = equals != std::string::npos && equals > 0 && typed.find_first_of("/.") > equals;
  return word ? equals : 0;
}

/// A file to be written, and the one output in it, or "" for all.
struct PlannedFile {
  std::string name, path;
  Format format;
};

PlannedFile plan_of(const OutputTarget& target, const std::vector<std::string>& outputs) {
  const bool one_only = *target.format == Format::npy || *target.format == Format::csv;
  if (!one_only || !target.name.empty()) return {target.name, target.path, *target.format};
  if (outputs.size() == 1) return {outputs.front(), target.path, *target.format};
  const std::string path = printable(target.path), found = std::to_string(outputs.size());
  if (is_stream(target.path))
    usage("--format " + std::string(name_of(*target.format)) + ": holds one output, found " +
          found + "; name it (-o " + outputs.front() + "=" + path +
          ") or use npz, safetensors or json");
  usage("-o " + path + ": holds one output, found " + found + "; name it (-o " + outputs.front() +
        "=" + path + ") or use .npz, .safetensors or .json");
}

std::vector<OutputPlace> places_of(const std::vector<PlannedFile>& plans) {
  std::vector<OutputPlace> places;
  for (const PlannedFile& plan : plans) places.push_back({"-o", plan.path});
  return places;
}

std::vector<PlannedFile> planned(const std::vector<OutputTarget>& targets,
                                 const std::vector<std::string>& outputs) {
  std::vector<PlannedFile> plans;
  for (const OutputTarget& target : targets) {
    if (target.format) {
      plans.push_back(plan_of(target, outputs));
      continue;
    }
    const std::string folder = target.path.back() == '/' ? target.path : target.path + "/";
    for (const std::string& name : outputs)
      plans.push_back({name, folder + name + ".npy", Format::npy});
  }
  refuse_two_for_one(places_of(plans));
  return plans;
}

std::string csv_of(const Result& result, const std::string& path) {
  const auto& [name, tensor] = *result.outputs.begin();
  return to_csv(tensor, printable(path) + ": " + printable(name));
}

}  // namespace

NewFolders::~NewFolders() {
  // What is below another comes behind it.
  for (auto folder = made_.rbegin(); folder != made_.rend(); ++folder) rmdir(folder->first.c_str());
}

void NewFolders::make(const std::string& path, bool durable) {
  const std::lock_guard lock(mutex_);
  make_one(path, durable);
}

void NewFolders::make_with_parents(const std::string& path, bool durable) {
  std::vector<std::string> missing;
  const std::lock_guard lock(mutex_);  // what another thread makes is there once it is on disk
  for (std::string at = path; !at.empty() && !is_folder_there(at); at = parent_of(at))
    missing.push_back(at);
  for (auto folder = missing.rbegin(); folder != missing.rend(); ++folder)
    make_one(*folder, durable);
}

void NewFolders::make_one(const std::string& path, bool durable) {
  {
    const SignalShelter shelter;
    // Named first: a signal may come to this very thread, which then cannot do it.
    const auto [place, first] = made_.try_emplace(path, path);
    if (mkdir(path.c_str(), 0777) != 0) {
      const int code = errno;
      if (first) made_.erase(place);
      if (code == EEXIST) return;
      throw system_error(ErrorKind::cannot_create, path, code);
    }
  }
  if (durable) sync_folder(path, parent_of(path));
}

void NewFolders::keep() {
  const std::lock_guard lock(mutex_);
  made_.clear();
}

void NewFolders::keep(const std::string& path) {
  const std::lock_guard lock(mutex_);
  for (std::string kept = path; !kept.empty() && kept != "/"; kept = parent_of(kept))
    made_.erase(kept);
}

const std::vector<std::string>& job_output_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const OutputName& output : kOutputNames) all.push_back(output.name);
    all.insert(all.end(), kInputNames.begin(), kInputNames.end());
    return all;
  }();
  return names;
}

OutputTarget parse_target(const std::string& typed, const std::vector<std::string>& names,
                          std::optional<Format> stream) {
  OutputTarget target;
  const std::size_t length = name_length(typed);
  target.name = typed.substr(0, length);
  target.path = length == 0 ? typed : typed.substr(length + 1);
  const bool known = std::find(names.begin(), names.end(), target.name) != names.end();
  if (!target.name.empty() && !known)
    usage("-o " + printable(typed) + ": unknown output '" + printable(target.name) + "'" +
          did_you_mean(target.name, names));
  if (target.path.empty()) usage("-o " + printable(typed) + ": expected a path");
  target.format = format_of_suffix(target.path);
  if (!target.format && is_stream(target.path)) {
    target.format = stream;
    if (!stream)
      usage("-o " + printable(typed) +
            ": expected --format npz, npy, json, csv or safetensors beside it");
  } else if (!target.format && (!target.name.empty() || !is_folder(target.path))) {
    usage("-o " + printable(typed) + ": expected a name that ends in " + kSuffixes +
          ", or a folder (ending in /)");
  }
  return target;
}

std::vector<std::string> outputs_named(const std::vector<OutputTarget>& targets) {
  std::vector<std::string> names;
  for (const OutputTarget& target : targets) {
    if (target.name.empty()) return {};
    if (std::find(names.begin(), names.end(), target.name) == names.end())
      names.push_back(target.name);
  }
  return names;
}

std::vector<OutputPlace> places_of(const std::vector<OutputTarget>& targets,
                                   const std::vector<std::string>& outputs) {
  return places_of(planned(targets, outputs));
}

void refuse_two_for_one(const std::vector<OutputPlace>& places) {
  if (places.size() < 2) return;
  std::set<fs::path> taken;
  for (const auto& [flag, path] : places) {
    std::error_code error, ignored;
    fs::path place = fs::weakly_canonical(fs::absolute(follow_links(path), ignored), error);
    if (error) place = path;  // a folder that is closed to us, say: opening it tells
    if (!is_stream(path) && !taken.insert(place).second)
      usage(flag + " " + printable(path) + ": expected a file of its own, found it twice");
  }
}

std::set<std::string> outputs_for_rows(const std::vector<OutputTarget>& targets,
                                       const std::vector<std::string>& outputs) {
  std::set<std::string> takers, others;
  for (const PlannedFile& plan : planned(targets, outputs)) {
    const bool takes_rows = std::endian::native == std::endian::little && is_binary(plan.format) &&
                            !is_stream(plan.path);
    for (const std::string& name : outputs)
      if (plan.name.empty() || plan.name == name) (takes_rows ? takers : others).insert(name);
  }
  for (const std::string& name : others) takers.erase(name);
  return takers;
}

ResultWriter::ResultWriter(const std::vector<OutputTarget>& targets,
                           const std::vector<std::string>& outputs, const OutputPolicy& policy)
    : outputs_(outputs) {
  const std::vector<PlannedFile> plans = planned(targets, outputs);
  for (const OutputTarget& target : targets)
    if (!target.format) folders_.make(target.path, policy.durable);
  for (const PlannedFile& plan : plans)
    parts_.push_back({plan.name, plan.format, OutputFile(plan.path, policy), {}});
}

void ResultWriter::begin(const Plan& plan, const Result& described) {
  for (const PlannedOutput& output : plan.outputs)
    specs_[output.name] = {output.name, output.dtype, output.shape};
  for (Part& part : parts_) {
    std::set<std::string> streamed;
    for (const PlannedOutput& output : plan.outputs)
      if (output.streamed && part.holds(output.name)) streamed.insert(output.name);
    if (!streamed.empty()) lay_out(part, streamed, described);
  }
}

/// Opens a place in the part's file for each of the `streamed` outputs.
void ResultWriter::lay_out(Part& part, const std::set<std::string>& streamed,
                           const Result& described) {
  std::vector<TensorSpec> specs;
  for (const std::string& name : names_in(part)) {
    specs.push_back(specs_.at(name));
    specs.back().dtype = stored_dtype(part.format, specs.back().dtype);
  }
  const std::vector<std::uint32_t> unknown(specs.size());
  const std::vector<std::uint64_t> offsets =
      offsets_of(pieces_of(part.format, specs, unknown, described, part.file.path()), specs);
  std::uint64_t end = 0;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    if (!streamed.contains(specs[i].name)) continue;
    const std::size_t row = specs[i].shape.back() * size_of(specs[i].dtype);
    part.rows.emplace(specs[i].name, std::make_unique<RowWriter>(part.file, offsets[i], row,
                                                                 part.format == Format::npz));
    end = std::max(end, offsets[i] + specs[i].bytes());
  }
  part.file.reserve(end);
}

void ResultWriter::write_rows(const std::string& name, const RowBlock& block) {
  for (const Part& part : parts_) {
    const auto place = part.rows.find(name);
    if (place == part.rows.end()) continue;
    Tensor kept;
    const RowBlock rows = converted(block, stored_dtype(part.format, block.dtype), kept);
    place->second->write(rows.first, rows.count, rows.data, rows.stride);
  }
}

std::vector<std::string> ResultWriter::names_in(const Part& part) const {
  return part.name.empty() ? outputs_ : std::vector{part.name};
}

void ResultWriter::write(const Result& result) {
  for (Part& part : parts_) {
    if (is_binary(part.format)) {
      write_binary(part, result);
      continue;
    }
    Result chosen{{}, {}, result.tokens, result.made_by};
    for (const std::string& name : names_in(part))
      chosen.outputs.set(name, result.outputs.at(name));
    part.file.write(part.format == Format::json ? result_json(chosen, 2) + "\n"
                                                : csv_of(chosen, part.file.path()));
  }
}

void ResultWriter::write_binary(Part& part, const Result& result) {
  std::vector<TensorSpec> specs;
  std::vector<Elements> elements;
  for (const std::string& name : names_in(part)) {
    const auto rows = part.rows.find(name);
    const Tensor* tensor = result.outputs.find(name);
    TensorSpec spec = rows != part.rows.end()
                          ? specs_.at(name)
                          : TensorSpec{name, result.outputs.at(name).dtype(), tensor->shape()};
    spec.dtype = stored_dtype(part.format, spec.dtype);
    elements.push_back(rows != part.rows.end() ? Elements{{}, rows->second.get()}
                                               : elements_of(*tensor, spec.dtype));
    specs.push_back(std::move(spec));
  }
  const std::vector<std::uint32_t> checksums = part.format == Format::npz
                                                   ? checksums_of(elements, specs)
                                                   : std::vector<std::uint32_t>(specs.size());
  write_pieces(pieces_of(part.format, specs, checksums, result, part.file.path()), specs, elements,
               part.file);
}

void ResultWriter::commit() {
  for (Part& part : parts_) part.file.finish();  // no name is given where a disk is full
  for (Part& part : parts_) part.file.commit();
  folders_.keep();
}

std::vector<std::pair<std::string, std::string>> ResultWriter::digests() const {
  std::vector<std::pair<std::string, std::string>> digests;
  for (const Part& part : parts_) digests.emplace_back(part.file.path(), part.file.digest());
  return digests;
}

}  // namespace attn
