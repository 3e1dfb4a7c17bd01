// The job document: its keys, and what was typed for each of them.
//
// One table (kFields) holds every key with its flag, form and meaning; the reader, `attn schema`,
// `attn run --help` and docs/formats.md all come from it. A document on disk and flags on the
// command line end in the same place, a Document, and a flag wins.
#pragma once

#include <string>
#include <vector>

#include "attn/io/json.h"

namespace attn {

/// What a key's value may be.
enum class FieldForm {
  tensor,  ///< nested numbers, "FILE", "FILE#NAME" or a random draw
  integer,
  number,
  boolean,
  word,      ///< one of `words`
  integers,  ///< a list of them
  words,     ///< a list of strings
  object,    ///< with fields of its own
};

struct Field {
  std::string key;   ///< in a document: "W_Q", "kv_heads"
  std::string flag;  ///< on the command line: "--wq", "--kv-heads"; "" when there is none
  FieldForm form;
  std::string placeholder;         ///< in help: "FILE", "H", "LEFT,RIGHT"
  std::string what;                ///< one line
  std::vector<std::string> words;  ///< words allowed beside, or instead of, the form
  std::vector<Field> fields;       ///< of an object
};

const std::vector<Field>& job_fields();

/// The JSON Schema (draft 2020-12) of the document, made from job_fields().
std::string job_schema();

/// One value as typed, and where: `origin` is "job.json" or "--wq"; relative paths in it start
/// from `folder`.
struct Entry {
  std::string key;
  Json value;
  std::string origin;
  std::string folder;
};

/// The whole of what was typed, flags over file.
struct Document {
  std::vector<Entry> entries;
  const Entry* find(const std::string& key) const;
  void set(Entry entry);  ///< replaces one of the same key
};

}  // namespace attn
