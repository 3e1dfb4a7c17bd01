#include "attn/io/tensor_file.h"

#include <algorithm>
#include <filesystem>
#include <span>
#include <system_error>

#include "attn/base/error.h"
#include "attn/base/suggestion.h"
#include "attn/base/text.h"
#include "attn/io/digest.h"
#include "attn/io/json_parse.h"
#include "attn/io/npz.h"
#include "attn/io/open_file.h"
#include "attn/io/safetensors.h"

namespace attn {
namespace {

bool has_header(const FileBytes& file) { return format_of(file).index == FormatRow::Index::header; }

/// Whether files with this suffix have a header.
bool names_header(const std::string& path) {
  const FormatRow* format = format_of_suffix(path);
  return format != nullptr && format->index == FormatRow::Index::header;
}

bool is_index(const std::string& path) { return path.ends_with(kIndexSuffix); }

}  // namespace

bool is_model_file(const std::string& path) { return names_header(path) || is_index(path); }

TensorRef parse_tensor_ref(const std::string& text) {
  const std::size_t last = text.rfind('#');
  std::error_code ignored;
  if (last == std::string::npos || std::filesystem::exists(text, ignored)) return {text, ""};
  const std::size_t quote = text.find("#'");
  const NamedPart quoted = split_part(text);
  if (quote != std::string::npos && quote + 3 < quoted.name.size() && quoted.name.ends_with('\''))
    return {text.substr(0, quote), text.substr(quote + 2, quoted.name.size() - quote - 3),
            quoted.part};
  const auto split = [&](std::size_t hash) {
    return TensorRef{text.substr(0, hash), text.substr(hash + 1)};
  };
  for (std::size_t hash = last; hash != std::string::npos && hash > 0;
       hash = text.rfind('#', hash - 1)) {
    TensorRef ref = split(hash);
    if (ref.path == "-" || std::filesystem::exists(ref.path, ignored)) return ref;
  }
  return split(last);
}

TensorMap read_tensors(const FileBytes& file, const ReadLimits& limits, ReadBudget* budget) {
  if (file.size == 0) fail_at({file.name()}, "is empty");
  return format_of(file).read(file, nullptr, limits, budget);
}

void TensorFiles::add(FileBytes file) {
  budget_.charge(file.size, file.name());
  files_.insert_or_assign(file.path, std::move(file));
}

const FileBytes& TensorFiles::file(const std::string& path) {
  const auto found = files_.find(path);
  if (found != files_.end()) {
    if (partly_read_.erase(path) > 0) use_part(found->second, found->second.size);
    return found->second;
  }
  if (shared_ == nullptr) {
    FileBytes file = read_file(path, budget_.left(), limits_.access);
    add(std::move(file));
    return files_.at(path);
  }
  // A job of a batch reserves memory before the file is read.
  std::error_code is_no_file;
  if (const std::uintmax_t size = std::filesystem::file_size(path, is_no_file); !is_no_file) {
    budget_.charge(size, printable(path));
    budget_.release(size);
  }
  // Keep the version whose digest is recorded, for tensors requested later.
  const auto held = held_.emplace(path, shared_->file(path)).first;
  add(held->second->bytes());
  return files_.at(path);
}

/// Counts a part of a mapped file as memory.
void TensorFiles::use_part(const FileBytes& file, std::size_t size) {
  budget_.charge(size, file.name());
  mapped_parts_.add(size);
}

/// The file, of which tensors are read by name.
const FileBytes& TensorFiles::file_of_names(const std::string& path) {
  const auto found = files_.find(path);
  if (found != files_.end()) return found->second;
  if (shared_ != nullptr || limits_.access != FileAccess::map || !names_header(path))
    return file(path);
  FileBytes bytes = read_file(path, budget_.left(), FileAccess::map_part);
  if (bytes.is_mapped)
    partly_read_[path];
  else
    budget_.charge(bytes.size, bytes.name());
  return files_.emplace(path, std::move(bytes)).first->second;
}

TensorFiles::TensorFiles(TensorFiles& whole, const ReadLimits& limits)
    : shared_(whole.shared_), limits_(limits), budget_(limits.memory) {
  constexpr std::size_t kShare = 8;  // of the memory
  if (whole.parts_ == nullptr)
    whole.parts_ = std::make_shared<ParsedFiles>(whole.limits_.memory / kShare);
  parts_ = whole.parts_;
}

std::shared_ptr<ParsedFile> TensorFiles::parsed(const FileBytes& file) const {
  if (const auto held = held_.find(file.path); held != held_.end())
    return {held->second, &held->second->parsed()};
  return parts_ == nullptr || !file.version ? std::make_shared<ParsedFile>()
                                            : parts_->find(file.path, *file.version);
}

template <class Parse>
void TensorFiles::parse(const FileBytes& file, Contents& contents, const Parse& parse) {
  if (contents.file == nullptr) contents.file = parsed(file);
  const std::size_t before = contents.file->size();
  parse(*contents.file);
  if (const auto held = held_.find(file.path); held != held_.end())
    shared_->count(*held->second);
  else if (parts_ != nullptr)
    parts_->count(contents.file->size() - before);
}

const SafetensorsHeader& TensorFiles::header(const std::string& path) {
  Contents& contents = contents_[path];
  if (contents.header == nullptr) {
    const FileBytes& bytes = file_of_names(path);
    if (partly_read_.contains(path)) use_part(bytes, safetensors_header_size(bytes));
    parse(bytes, contents,
          [&](ParsedFile& file) { contents.header = &file.header(bytes, budget_); });
  }
  return *contents.header;
}

const NpzIndex& TensorFiles::archive(const FileBytes& bytes) {
  Contents& contents = contents_[bytes.path];
  if (contents.archive == nullptr)
    parse(bytes, contents,
          [&](ParsedFile& file) { contents.archive = &file.archive(bytes, limits_.npz, budget_); });
  return *contents.archive;
}

const ShardNames& TensorFiles::shards(const std::string& path) {
  Contents& contents = contents_[path];
  if (contents.shards == nullptr) {
    const FileBytes& bytes = file(path);
    parse(bytes, contents,
          [&](ParsedFile& file) { contents.shards = &file.shards(bytes, budget_); });
  }
  return *contents.shards;
}

const Json& TensorFiles::document(const std::string& path) {
  Contents& contents = contents_[path];
  if (contents.document == nullptr) {
    const FileBytes& bytes = file(path);
    parse(bytes, contents,
          [&](ParsedFile& file) { contents.document = &file.document(bytes, budget_); });
  }
  return *contents.document;
}

namespace {

/// Keeps only a small part of a mapped file in memory.
std::string digest_of_part(const FileBytes& file, std::span<const std::byte> part) {
  constexpr std::size_t kStep = std::size_t{4} << 20;
  Digest digest;
  for (std::size_t at = 0; at < part.size(); at += kStep) {
    const auto next = part.subspan(at, std::min(kStep, part.size() - at));
    digest.add(next);
    file.release_pages(next);
  }
  return digest.text();
}

}  // namespace

ReleasePages TensorFiles::releaser(const Tensor& tensor) const {
  const std::byte* const first = tensor.raw();
  for (const auto& entry : files_)
    if (const FileBytes& file = entry.second;
        file.is_mapped && first >= file.data.get() && first < file.data.get() + file.size)
      return [file](std::span<const std::byte> part) { file.release_pages(part); };
  return [](std::span<const std::byte>) {};
}

std::vector<std::pair<std::string, std::string>> TensorFiles::digests() const {
  std::vector<std::pair<std::string, std::string>> digests;
  for (const auto& [path, file] : files_) {
    const auto part = partly_read_.find(path);
    if (part == partly_read_.end()) {
      const auto contents = contents_.find(path);
      const bool is_parsed = contents != contents_.end() && contents->second.file != nullptr;
      digests.emplace_back(path, is_parsed ? contents->second.file->digest(file) : file.digest());
      continue;
    }
    for (const std::string& name : part->second) {
      const SafetensorsEntry& entry = entry_named(*contents_.at(path).header, name, file);
      digests.emplace_back(
          path + "#" + name,
          digest_of_part(file, file.bytes().subspan(entry.begin, entry.end - entry.begin)));
    }
  }
  return digests;
}

const TensorMap& TensorFiles::all(const std::string& path) {
  const auto found = tensors_.find(path);
  if (found != tensors_.end()) return *found->second;
  std::shared_ptr<const TensorMap> tensors;
  if (is_index(path)) {
    tensors = std::make_shared<const TensorMap>(below(path, ""));
  } else {
    const FileBytes& bytes = file(path);
    tensors = is_own(path)
                  ? std::make_shared<const TensorMap>(read_tensors(bytes, limits_, &budget_))
                  : shared_->tensors(*held_.at(path));
  }
  return *tensors_.emplace(path, std::move(tensors)).first->second;
}

std::vector<std::string> TensorFiles::names(const std::string& path) {
  std::vector<std::string> names;
  if (is_index(path))
    for (const auto& [name, shard] : shards(path)) names.push_back(name);
  else if (has_header(file_of_names(path)))
    for (const SafetensorsEntry& entry : header(path).entries) names.push_back(entry.name);
  else
    names = all(path).names();
  return names;
}

std::optional<StoredTensor> TensorFiles::stored(const std::string& path, const std::string& name) {
  if (is_index(path)) {
    if (!shards(path).contains(name)) return std::nullopt;
    const TensorRef shard = in_shard({path, name});
    return within(path, [&] { return stored(shard.path, name); });
  }
  const SafetensorsEntry* entry = header(path).find(name);
  if (entry == nullptr) return std::nullopt;
  return StoredTensor{std::string(entry->kind->name), entry->shape};
}

std::set<std::string> TensorFiles::paths_of(const TensorRef& ref) {
  std::set<std::string> paths = {ref.path};
  if (!is_index(ref.path)) return paths;
  const std::string whole = split_part(ref.member).name;
  const bool is_prefix = ref.member.empty() || ref.member.ends_with('.');
  const ShardNames& all = shards(ref.path);
  for (const std::string& name : {ref.member, whole})
    if (all.contains(name)) paths.insert(in_shard({ref.path, name}).path);
  if (is_prefix)
    for (const std::string& name : names_below(ref.path, ref.member))
      paths.insert(in_shard({ref.path, name}).path);
  return paths;
}

bool TensorFiles::contains(const std::string& path, const std::string& name) {
  if (is_index(path)) return shards(path).contains(name);
  const FileBytes& bytes = file_of_names(path);
  if (format_of(bytes).index == FormatRow::Index::directory && is_own(path) &&
      !tensors_.contains(path))
    return archive(bytes).by_name.contains(name);
  if (has_header(bytes)) return header(path).find(name) != nullptr;
  return all(path).contains(name);
}

/// The names that start with `prefix`, in the order of the file.
std::vector<std::string> TensorFiles::names_below(const std::string& path,
                                                  const std::string& prefix) {
  if (is_index(path)) {
    std::vector<std::string> names;
    const ShardNames& all = shards(path);
    for (auto next = all.lower_bound(prefix); next != all.end() && next->first.starts_with(prefix);
         ++next)
      names.push_back(next->first);
    return names;
  }
  return has_header(file_of_names(path)) ? header(path).names_below(prefix)
                                         : all(path).names_below(prefix);
}

namespace {

constexpr std::size_t kMaxListed = 8;  ///< names in a message

/// "a, b and 2 more": the names of the elements.
template <class Elements, class NameOf>
std::string listed(const Elements& elements, const NameOf& name_of) {
  std::vector<std::string> first;
  for (const auto& element : elements) {
    if (first.size() == kMaxListed) break;
    first.push_back(name_of(element));
  }
  return list_first_names(first, elements.size());
}

}  // namespace

/// The first names of a file with several tensors, for messages.
std::string TensorFiles::listed_names(const std::string& path) {
  const auto key = [](const auto& entry) { return entry.first; };
  if (is_index(path)) return listed(shards(path), key);
  if (!has_header(file_of_names(path))) return listed(all(path), key);
  return listed(header(path).entries, [](const auto& entry) { return entry.name; });
}

TensorMap TensorFiles::below(const std::string& path, const std::string& prefix) {
  TensorMap tensors;
  for (const std::string& name : names_below(path, prefix))
    if (name.size() > prefix.size())
      tensors.set(name.substr(prefix.size()), read_whole({path, name}));
  if (tensors.empty())
    fail_at({path}, "has no tensor whose name starts with '" + printable(prefix) +
                        "'; its tensors: " + listed_names(path));
  return tensors;
}

/// A tensor of an index as one of the file that contains it.
TensorRef TensorFiles::in_shard(const TensorRef& ref) {
  const ShardNames& names = shards(ref.path);
  const auto found = names.find(ref.member);
  if (found == names.end()) {
    if (ref.member.empty())
      fail_at({ref.path}, "has several arrays (" + listed_names(ref.path) +
                              "); select one, for example " +
                              printable(ref.path + "#" + names.begin()->first));
    const auto near = names_around(
        names.begin(), names.size() > kMostSearched ? names.lower_bound(ref.member) : names.begin(),
        names.end(), [](const auto& entry) { return entry.first; });
    fail_at({ref.path}, "has no tensor '" + printable(ref.member) + "'" +
                            did_you_mean(ref.member, near, NameKind::tensor));
  }
  const std::size_t slash = ref.path.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : ref.path.substr(0, slash + 1);
  return {folder + found->second, ref.member};
}

FileMetadata TensorFiles::metadata(const std::string& path) {
  const FileBytes& bytes = file(path);
  switch (format_of(bytes).index) {
    case FormatRow::Index::header:
      return header(path).metadata;
    case FormatRow::Index::directory:
      return npz_metadata(bytes, archive(bytes), &budget_);
    case FormatRow::Index::none:
      break;
  }
  return {};
}

CsvNames TensorFiles::csv_names(const std::string& path) {
  const FileBytes& bytes = file(path);
  return format_of(bytes).names_rows ? read_csv_names(bytes, bytes.name(), budget_) : CsvNames{};
}

NamedPart TensorFiles::named_part(const TensorRef& ref) {
  if (!ref.part.empty()) return {ref.member, ref.part};
  NamedPart named = split_part(ref.member);
  if (named.part.empty() || contains(ref.path, ref.member)) return {ref.member, ""};
  return named;
}

Tensor TensorFiles::read(const TensorRef& ref, Shape* whole_shape) {
  const NamedPart named = named_part(ref);
  const Tensor whole = read_whole({ref.path, named.name});
  if (whole_shape != nullptr) *whole_shape = whole.shape();
  if (named.part.empty()) return whole;
  const std::string file = ref.path == "-" ? "standard input" : ref.path;
  return within(file, [&] {
    return within(named.name, [&] { return part_of(whole, named.part, file, &budget_); });
  });
}

Tensor TensorFiles::read_whole(const TensorRef& ref) {
  if (is_index(ref.path)) {
    const TensorRef shard = in_shard(ref);
    return within(ref.path, [&] { return read_whole(shard); });
  }
  const FileBytes& bytes = file_of_names(ref.path);
  if (!ref.member.empty() && has_header(bytes)) {
    const SafetensorsEntry& entry = entry_named(header(ref.path), ref.member, bytes);
    const auto part = partly_read_.find(ref.path);
    if (part != partly_read_.end() && part->second.insert(ref.member).second)
      use_part(bytes, entry.end - entry.begin);
    return read_safetensor(bytes, entry, &budget_);
  }
  if (!ref.member.empty() && is_own(ref.path) && !tensors_.contains(ref.path) &&
      format_of(bytes).index == FormatRow::Index::directory)
    if (const std::optional<Tensor> tensor =
            read_npz_array(bytes, archive(bytes), ref.member, &budget_))
      return *tensor;
  const TensorMap& tensors = all(ref.path);
  if (ref.member.empty() && tensors.size() == 1) return tensors.begin()->second;
  if (tensors.empty()) fail_at({bytes.name()}, "has no arrays");
  if (ref.member.empty())
    fail_at({bytes.name()}, "has several arrays (" + listed_names(ref.path) +
                                "); select one, for example " +
                                printable(ref.path + "#" + tensors.begin()->first));
  if (const Tensor* tensor = tensors.find(ref.member)) return *tensor;
  const std::string member = std::string("'").append(printable(ref.member)).append("'");
  if (tensors.size() == 1 && tensors.contains(""))
    fail_at({bytes.name()}, "has no array " + member + "; its only array is unnamed");
  fail_at({bytes.name()}, "has no array " + member +
                              printable(did_you_mean(ref.member, tensors.names_near(ref.member),
                                                     NameKind::tensor)) +
                              "; its arrays: " + listed_names(ref.path));
}

}  // namespace attn
