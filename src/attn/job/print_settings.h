// The print_options of a job and the flags of the same names, as a Document.
#pragma once

#include "attn/base/print_options.h"
#include "attn/job/document.h"

namespace attn {

/// The entries of print_options alone.
Document print_settings_of(const Document& document);

/// The options that `flags` set, and otherwise `settings`; options that neither sets have the
/// defaults of the style. All values are valid. Errors: usage, for a flag without effect in the
/// style. (Settings without effect are refused where the job is read. Here they are ignored,
/// because a flag may have changed the style.)
PrintOptions print_options_of(const Document& settings, const Document& flags = {});

}  // namespace attn
