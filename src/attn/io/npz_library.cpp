// Defines the functions of libzip that npz.cpp calls, each of which goes on to the library of that
// name, opened at the first call: libzip brings libcrypto along, whose loading takes longer than a
// small job.
#include <zip.h>

#include "attn/base/late_library.h"

namespace {

template <class Result, class... Parameters, class... Values>
Result forward(Result (*declared)(Parameters...), const char* name, Values... values) {
  static const attn::LateLibrary library("libzip", ATTN_LIBZIP);
  return library.find(declared, name)(values...);
}

}  // namespace

extern "C" {

void zip_error_init(zip_error_t* error) { forward(&zip_error_init, "zip_error_init", error); }

void zip_error_fini(zip_error_t* error) { forward(&zip_error_fini, "zip_error_fini", error); }

const char* zip_error_strerror(zip_error_t* error) {
  return forward(&zip_error_strerror, "zip_error_strerror", error);
}

int zip_error_code_zip(const zip_error_t* error) {
  return forward(&zip_error_code_zip, "zip_error_code_zip", error);
}

int zip_error_code_system(const zip_error_t* error) {
  return forward(&zip_error_code_system, "zip_error_code_system", error);
}

zip_error_t* zip_get_error(zip_t* archive) {
  return forward(&zip_get_error, "zip_get_error", archive);
}

zip_error_t* zip_file_get_error(zip_file_t* file) {
  return forward(&zip_file_get_error, "zip_file_get_error", file);
}

zip_source_t* zip_source_buffer_create(const void* data, zip_uint64_t size, int free_it,
                                       zip_error_t* error) {
  return forward(&zip_source_buffer_create, "zip_source_buffer_create", data, size, free_it, error);
}

void zip_source_free(zip_source_t* source) { forward(&zip_source_free, "zip_source_free", source); }

zip_t* zip_open_from_source(zip_source_t* source, int flags, zip_error_t* error) {
  return forward(&zip_open_from_source, "zip_open_from_source", source, flags, error);
}

void zip_discard(zip_t* archive) { forward(&zip_discard, "zip_discard", archive); }

zip_int64_t zip_get_num_entries(zip_t* archive, zip_flags_t flags) {
  return forward(&zip_get_num_entries, "zip_get_num_entries", archive, flags);
}

const char* zip_get_name(zip_t* archive, zip_uint64_t index, zip_flags_t flags) {
  return forward(&zip_get_name, "zip_get_name", archive, index, flags);
}

const char* zip_get_archive_comment(zip_t* archive, int* length, zip_flags_t flags) {
  return forward(&zip_get_archive_comment, "zip_get_archive_comment", archive, length, flags);
}

int zip_stat_index(zip_t* archive, zip_uint64_t index, zip_flags_t flags, zip_stat_t* stat) {
  return forward(&zip_stat_index, "zip_stat_index", archive, index, flags, stat);
}

zip_file_t* zip_fopen_index(zip_t* archive, zip_uint64_t index, zip_flags_t flags) {
  return forward(&zip_fopen_index, "zip_fopen_index", archive, index, flags);
}

zip_int64_t zip_fread(zip_file_t* file, void* to, zip_uint64_t size) {
  return forward(&zip_fread, "zip_fread", file, to, size);
}

int zip_fclose(zip_file_t* file) { return forward(&zip_fclose, "zip_fclose", file); }

}  // extern "C"
