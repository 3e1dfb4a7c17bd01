#include "attn/batch/bundle.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <unordered_map>
#include <utility>

#include "attn/base/error.h"
#include "attn/base/packing.h"
#include "attn/base/text.h"
#include "attn/batch/item_output.h"
#include "attn/batch/message.h"
#include "attn/io/digest.h"
#include "attn/io/elements.h"
#include "attn/io/json_parse.h"
#include "attn/io/output_path.h"
#include "attn/io/safetensors.h"
#include "attn/io/staged_file.h"
#include "attn/io/tensor_file.h"
#include "attn/job/labels.h"
#include "attn/job/recorded_positions.h"
#include "attn/job/recorded_visibility.h"
#include "attn/run/result_file.h"
#include "attn/tensor/shape.h"

namespace attn {
namespace {

constexpr char kBetween = '/';  // job and output, in the name of a tensor

/// JSON text from a worker, written again; "" stays. Errors: BadMessage.
std::string checked_json(std::string_view text) {
  if (text.empty()) return "";
  MemoryCharge charge(nullptr, "");
  try {
    return to_json(parse_json(text, "", charge));
  } catch (const Error&) {
    throw BadMessage();
  }
}

/// The members of made_by that say what the axes of tensors are, as a JSON object; "" if it has
/// none.
std::string labels_text(const Json& made_by) {
  JsonObject members;
  for (const std::string_view member : kLabelMembers)
    if (const Json* recorded = made_by.find(member)) members.emplace_back(member, *recorded);
  return members.empty() ? "" : to_json(Json{std::move(members)});
}

std::string visible_text(const Json& made_by) {
  const Json* recorded = made_by.find(kVisibleMember);
  return recorded == nullptr ? "" : to_json(*recorded);
}

}  // namespace

std::string encoded_result(const TensorMap& outputs, const std::string& suffix) {
  std::vector<std::string> names = outputs.names();
  std::sort(names.begin(), names.end());  // the order in a file depends on the format
  std::string text;
  const auto add = [&](std::uint64_t number) { pack(text, number); };
  for (const std::string& name : names) {
    const Tensor& tensor = outputs.at(name);
    const DType dtype = format_of_suffix(suffix)->stored_dtype(tensor.dtype());
    const Elements elements = elements_of(tensor, dtype);
    pack_text(text, name);
    add(static_cast<std::uint64_t>(dtype));
    add(tensor.shape().size());
    for (const std::size_t size : tensor.shape()) add(size);
    add(elements.checksum(elements.tensor.bytes()));
    pack_text(text, text_of(std::span(elements.tensor.raw(), elements.tensor.bytes())));
  }
  return text;
}

std::string encoded_record(const Json& made_by) {
  std::string text;
  pack_text(text, labels_text(made_by));
  pack_text(text, visible_text(made_by));
  return text;
}

OpenBundle::OpenBundle(const std::string& path, const ReadLimits& limits) {
  TensorFiles files(limits);
  files.add(read_file(open_result(path), path, limits.memory, FileAccess::map));
  ResultFile file = read_result(path, files);
  tensors_ = std::move(file.tensors);
  made_by_ = std::move(file.made_by);
  if (const Json* jobs = made_by_.find("jobs")) {
    if (const auto records = jobs->get<JsonObject>())
      for (const auto& [name, record] : *records) records_[name_of_text(name)] = record;
    made_by_ = {};
  }
  std::size_t index = 0;
  for (const auto& [name, tensor] : tensors_)
    indices_[name.substr(0, name.rfind(kBetween))].push_back(index++);
}

TensorMap OpenBundle::result(const std::string& name) const {
  TensorMap result;
  const auto found = indices_.find(name);
  if (found == indices_.end()) return result;
  for (const std::size_t index : found->second) {
    const auto& [member, tensor] = *(tensors_.begin() + static_cast<std::ptrdiff_t>(index));
    result.set(member.substr(member.rfind(kBetween) + 1), tensor);
  }
  return result;
}

const Json& OpenBundle::made_by(const std::string& name) const {
  const auto record = records_.find(name);
  return record == records_.end() ? made_by_ : record->second;
}

std::shared_ptr<const OpenBundle> BundleCache::find(const std::string& path) {
  const std::lock_guard lock(mutex_);
  for (const auto& [kept_path, bundle] : kept_)
    if (kept_path == path) return bundle;
  std::shared_ptr<const OpenBundle> bundle;
  try {
    bundle = std::make_shared<const OpenBundle>(path, limits_);
  } catch (const Error&) {  // its jobs run again
  }
  if (kept_.size() == kKept) kept_.erase(kept_.begin());
  kept_.emplace_back(path, bundle);
  return bundle;
}

BundleWriter::BundleWriter(const BatchContext& context, Manifest& manifest, std::size_t max_bytes)
    : context_(context),
      manifest_(manifest),
      max_bytes_(max_bytes),
      spool_(context.naming->folder) {}

void BundleWriter::add(std::span<const Outcome> outcomes) {
  const std::size_t size = context_.naming->bundle;
  for (const Outcome& outcome : outcomes) {
    const std::size_t bundle = context_.naming->bundle_of(outcome.number);
    if (bundle != bundle_) commit(), begin(bundle);
    add_result(outcome);
    require_memory();
    if (outcome.number % size == 0) commit();
  }
}

void BundleWriter::finish() { commit(); }

std::size_t BundleWriter::abandon() {
  const std::size_t lost = results_;
  manifest_.add_lines(failure_lines_);
  begin(0);
  return lost;
}

void BundleWriter::begin(std::size_t bundle) {
  bundle_ = bundle;
  results_ = kept_ = bytes_ = visible_bytes_ = labels_bytes_ = 0;
  members_.clear();
  records_.clear();
  lines_.clear();
  failure_lines_.clear();
  spool_.clear();
}

void BundleWriter::add_result(const Outcome& outcome) {
  if (outcome.status == Status::skipped) return keep_earlier_result(outcome);
  const std::string line = manifest_.line_of(outcome);
  lines_ += line;
  if (outcome.status == Status::failed) {
    failure_lines_ += line;
    return;
  }
  ++results_;
  add_members(outcome.outputs.at(0).first, outcome.text);
}

/// `output` is "bundle-K.npz#NAME".
void BundleWriter::add_members(const std::string& output, std::string_view result) {
  const std::string name = output.substr(output.find('#') + 1) + kBetween;
  Unpacker parts(result);
  Record record{checked_json(parts.text_view()), checked_json(parts.text_view())};
  if (!record.labels.empty() && record.labels.front() != '{') throw BadMessage();
  add_record(output.substr(output.find('#') + 1), std::move(record));
  while (!parts.empty()) {
    Member member;
    member.spec.name = name + parts.text();
    const std::uint64_t dtype = parts.number<std::uint64_t>();
    if (dtype > static_cast<std::uint64_t>(DType::boolean)) throw BadMessage();
    member.spec.dtype = static_cast<DType>(dtype);
    const std::uint64_t axes = parts.number<std::uint64_t>();
    if (axes > Shape::kMaxAxes) throw BadMessage();
    std::size_t size = size_of(member.spec.dtype);
    for (std::uint64_t axis = 0; axis < axes; ++axis) {
      member.spec.shape.push_back(parts.number<std::uint64_t>());
      size = saturating_product({size, member.spec.shape.back()});
    }
    member.checksum = static_cast<std::uint32_t>(parts.number<std::uint64_t>());
    const std::string_view elements = parts.text_view();
    if (elements.size() != size) throw BadMessage();
    member.offset = spool_.size();
    spool_.append(elements);
    bytes_ += member.spec.name.size() + sizeof member;
    members_.push_back(std::move(member));
  }
}

void BundleWriter::add_record(const std::string& job, Record record) {
  const std::size_t most = context_.naming->format()->most_metadata;
  visible_bytes_ += record.visible.size();
  if (visible_bytes_ > most)
    for (auto& [name, earlier] : records_) earlier.visible.clear();
  if (visible_bytes_ > most) record.visible.clear();
  if (record.labels.empty() && record.visible.empty()) return;
  labels_bytes_ += job.size() + record.labels.size();
  if (labels_bytes_ > most) return records_.clear();
  records_.emplace_back(job, std::move(record));
}

/// As JSON text; "" if no job has a record.
std::string BundleWriter::made_by() const {
  const std::size_t most = context_.naming->format()->most_metadata;
  const std::string start = "{\"schema\":\"attn/1\",";
  const std::string unknown = start + json_quoted(kPositionsMember) + ":null}";
  if (labels_bytes_ > most) return unknown;
  if (records_.empty()) return "";
  for (const bool with_visible : {true, false}) {
    std::string text = start + "\"jobs\":{";
    for (const auto& [job, record] : records_) {
      if (record.labels.empty() && (record.visible.empty() || !with_visible)) continue;
      if (text.back() != '{') text += ',';
      std::string members = record.labels.empty() ? "{}" : record.labels;
      if (!record.visible.empty() && with_visible) {
        if (members.size() > 2)
          members.back() = ',';
        else
          members.pop_back();
        members += json_quoted(kVisibleMember) + ":" + record.visible + "}";
      }
      text += json_quoted(text_of_name(job)) + ":" + members;
    }
    text += "}}";
    if (text.size() <= most) return text;
  }
  return unknown;
}

/// Its tensors stay in the old file until it is known whether the bundle changes.
void BundleWriter::keep_earlier_result(const Outcome& outcome) {
  const std::string& output = outcome.outputs.at(0).first;
  Member member;
  member.spec.name = output.substr(output.find('#') + 1);
  member.is_kept_job = true;
  bytes_ += member.spec.name.size() + sizeof member;
  members_.push_back(std::move(member));
  ++kept_;
}

void BundleWriter::require_memory() const {
  if (bytes_ + lines_.size() + failure_lines_.size() > max_bytes_)
    fail_data("bundle " + std::to_string(bundle_) +
              ": the names and manifest lines of its jobs take more than " +
              std::to_string(max_bytes_) +
              " bytes, one eighth of --max-memory; use a smaller --bundle");
}

/// A bundle keeps its file if all of its jobs are unchanged and it has no others.
void BundleWriter::commit() {
  if (bundle_ == 0) return;
  const std::string path = context_.naming->folder + "/" + context_.naming->bundle_file(bundle_);
  bool changed = results_ > 0;
  if (kept_ > 0) {
    const auto old = context_.bundles->find(path);
    if (old == nullptr)
      throw Error(ErrorKind::io, printable(path) + ": changed while the batch was running");
    changed = changed || old->jobs() != kept_;
    if (changed) fetch_kept_results(*old);
  }
  if (changed) write(path);
  manifest_.add_lines(lines_);
  begin(0);
}

void BundleWriter::fetch_kept_results(const OpenBundle& old) {
  std::vector<Member> members;
  for (Member& member : members_) {
    if (!member.is_kept_job) {
      members.push_back(std::move(member));
      continue;
    }
    const Json& made_by = old.made_by(member.spec.name);
    add_record(member.spec.name, {labels_text(made_by), visible_text(made_by)});
    const FormatRow& format = *context_.naming->format();
    for (const auto& [output, tensor] : old.result(member.spec.name)) {
      Elements elements = elements_of(tensor, format.stored_dtype(tensor.dtype()));
      members.push_back(
          {.spec = {member.spec.name + kBetween + output, elements.tensor.dtype(), tensor.shape()},
           .checksum = elements.checksum(elements.tensor.bytes()),
           .tensor = std::move(elements.tensor)});
    }
  }
  members_ = std::move(members);
  order_records();
}

/// As a run of all jobs adds them: in the order of the members.
void BundleWriter::order_records() {
  std::unordered_map<std::string_view, std::size_t> places;
  for (const Member& member : members_) {
    const std::string_view name = member.spec.name;
    places.emplace(name.substr(0, name.rfind(kBetween)), places.size());
  }
  const auto place = [&](const auto& record) {
    const auto found = places.find(record.first);
    return found == places.end() ? places.size() : found->second;
  };
  std::stable_sort(records_.begin(), records_.end(),
                   [&](const auto& a, const auto& b) { return place(a) < place(b); });
}

void BundleWriter::write(const std::string& path) {
  OutputPolicy policy = context_.policy;
  if (context_.earlier != nullptr) {
    policy.same = true;
    if (context_.earlier->has_output(path.substr(context_.naming->folder.size() + 1)))
      policy.ours.insert(path);
  }
  try {
    OutputFile out(path, policy);
    for (const LayoutPart& part : layout(path)) {
      out.write(part.text);
      if (part.tensor) write_elements(members_[*part.tensor], out);
    }
    out.commit();
  } catch (const ExistsAlready& error) {
    if (context_.earlier == nullptr) throw;
    throw foreign_file_error(error);
  }
}

FileLayout BundleWriter::layout(const std::string& path) const {
  std::vector<TensorSpec> specs;
  std::vector<std::uint32_t> checksums;
  for (const Member& member : members_) {
    specs.push_back(member.spec);
    checksums.push_back(member.checksum);
  }
  const FormatRow& format = *context_.naming->format();
  return format.layout(specs, checksums, metadata_of(format, made_by()), path);
}

void BundleWriter::write_elements(const Member& member, OutputFile& out) {
  if (member.tensor.bytes() > 0)
    return out.write(std::span(member.tensor.raw(), member.tensor.bytes()));
  std::array<std::byte, 65536> bytes;
  for (std::uint64_t done = 0; done < member.spec.bytes();) {
    const auto part =
        std::span(bytes).first(std::min<std::uint64_t>(bytes.size(), member.spec.bytes() - done));
    spool_.read(member.offset + done, part);
    out.write(part);
    done += part.size();
  }
}

}  // namespace attn
