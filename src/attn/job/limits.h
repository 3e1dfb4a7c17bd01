// Memory limits: parsing and printing sizes, and the check of a plan.
#pragma once

#include <cstddef>
#include <string>

#include "attn/core/plan.h"
#include "attn/io/limits.h"

namespace attn {

/// "2G", "512M", "1.5GiB", "1000000": K, M, G and T are powers of 1024. Errors: usage, naming
/// `flag`.
std::size_t parse_size(const std::string& text, const std::string& flag);

/// "64 bytes", "1.5 MiB"
std::string size_text(std::size_t bytes);

/// Nine tenths of the memory that is available to this process.
std::size_t default_memory();

/// Adds the memory for the digits of all outputs that are written as text or JSON.
void add_text(Plan& plan);

/// Errors: data, naming the bytes that are needed and --max-memory; `views` are flags that take
/// memory, too.
void require_memory(const Plan& plan, const std::string& job, std::size_t most,
                    const std::string& views = "");

/// {"outputs": [{"name", "shape", "dtype", "bytes", "flops"}], "memory": N, "flops": N, "path":
/// "kernels" or "reference", "kept_by": what has the reference compute}, on one line; "streamed":
/// true with outputs that are written while they are computed.
std::string plan_json(const Plan& plan);

/// For people: a line an output, and one for the whole.
std::string plan_text(const Plan& plan);

}  // namespace attn
