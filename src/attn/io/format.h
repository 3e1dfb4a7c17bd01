// The formats of tensor files, one row each. Code outside src/attn/io asks the row what a format
// can do; only io/format.cpp and the readers know one format from another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attn/io/file.h"
#include "attn/io/file_layout.h"
#include "attn/io/read_budget.h"
#include "attn/io/staged_file.h"
#include "attn/tensor/tensor.h"

namespace attn {

struct ReadLimits;

enum class Format { npz, npy, safetensors, json, csv };

struct FormatRow {
  enum class Contents {
    tensor,   ///< one, without a name
    tensors,  ///< by name
    document  ///< one tensor, or an object of tensors and other values: a job or a result
  };
  /// By what a reader finds one tensor without reading the others.
  enum class Index {
    none,
    header,    ///< at the start: names, dtypes and shapes
    directory  ///< at the end: names
  };
  enum class Metadata {
    none,
    one_text,  ///< JSON: the comment of an .npz
    by_key,    ///< texts by key: __metadata__ of .safetensors
    members    ///< of the object that has the tensors
  };

  Format format;
  std::string_view suffix;  ///< with its dot
  std::string_view title;   ///< in messages about files that may have another suffix
  Contents contents;
  Index index = Index::none;
  Metadata metadata = Metadata::none;
  /// Bytes that results and bundles store in one text.
  std::size_t most_metadata = 0;
  bool is_mapped = false;       ///< tensors that are read can share the memory of the file
  bool has_checksums = false;   ///< layout() needs them
  bool names_are_utf8 = false;  ///< names of other bytes cannot be written
  bool names_rows = false;      ///< and columns

  /// Recognises a file by its bytes, or by its name if bytes do not suffice. nullptr: by the name
  /// only.
  bool (*is)(const FileBytes& file) = nullptr;
  /// All tensors. A tensor without a name is named "". `metadata`, if not null, receives the texts
  /// of a file that stores one_text or by_key. What is kept stays charged to `budget`, if any.
  /// Errors: data.
  TensorMap (*read)(const FileBytes& file, FileMetadata* metadata, const ReadLimits& limits,
                    ReadBudget* budget);
  /// Of binary formats: where everything is in a file. `path` is for errors, which are: data, for
  /// names and metadata that the format cannot store.
  FileLayout (*layout)(const std::vector<TensorSpec>& specs,
                       const std::vector<std::uint32_t>& checksums, const FileMetadata& metadata,
                       const std::string& path) = nullptr;
  /// Of binary formats: the dtype in the file.
  DType (*stored_dtype)(DType dtype) = nullptr;
  /// Of text formats: the whole file. `path` is for errors, which are: data, for tensors that the
  /// format cannot express.
  std::string (*text)(const TensorMap& tensors, const std::string& path) = nullptr;

  /// Elements are stored as bytes, at offsets that are known in advance.
  bool is_binary() const { return layout != nullptr; }
  bool holds_one() const { return contents == Contents::tensor; }
  bool holds_several() const { return !holds_one(); }
  /// Binary, with several tensors.
  bool is_archive() const { return contents == Contents::tensors; }
  bool is_document() const { return contents == Contents::document; }
  bool keeps_metadata() const { return metadata != Metadata::none; }
  std::string_view name() const { return suffix.substr(1); }  ///< of --format: "npz"
};

/// All formats, in the order in which help and messages list them.
std::span<const FormatRow> all_formats();

const FormatRow& row_of(Format format);

/// Detects the format of a file: by its bytes, then by its suffix. Text from standard input or a
/// pipe, or in a .txt file, is CSV. Errors: data.
const FormatRow& format_of(const FileBytes& file);

/// The format of a path by its suffix; nullptr if it is unknown or absent.
const FormatRow* format_of_suffix(std::string_view path);
/// The format with this name ("npz"); nullptr if there is none.
const FormatRow* format_named(std::string_view name);

/// ".npz, .npy, .safetensors, .json or .csv", for messages and help: the suffixes of all formats,
/// or of those that `have` a property, such as &FormatRow::is_archive.
std::string listed_suffixes(bool (FormatRow::*have)() const = nullptr);
/// The same without dots, for --format.
std::string listed_names(bool (FormatRow::*have)() const = nullptr);
/// "npz", "npy", ..., between `first` and `last`.
std::vector<std::string> format_names(std::vector<std::string> first,
                                      const std::vector<std::string>& last = {});

/// Metadata of a result: schema, made_by and tokens are JSON texts. A format with one text stores
/// `made_by` only. No metadata if `made_by` is empty.
FileMetadata metadata_of(const FormatRow& format, const std::string& made_by,
                         const std::string& tokens = "");

/// The tensor of a file with one.
TensorMap unnamed(Tensor tensor);

/// Writes a file of tensors in a binary format. Each of `specs` has the dtype in the file. Errors:
/// as layout() and OutputFile.
void write_elements(const FormatRow& format, const std::vector<TensorSpec>& specs,
                    const std::vector<Elements>& elements, const FileMetadata& metadata,
                    OutputFile& out);
/// Writes a file of tensors in a binary or text format. Errors: as the row's functions and
/// OutputFile.
void write_tensors(const FormatRow& format, const TensorMap& tensors, const FileMetadata& metadata,
                   OutputFile& out);

}  // namespace attn
