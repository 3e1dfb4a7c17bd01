// What a batch does with one item: read, compute, write; or find that it is done already.
#pragma once

#include <string>

#include "attn/batch/claim.h"
#include "attn/batch/common.h"
#include "attn/batch/item.h"

namespace attn {

/// `room` is empty, and becomes the outcome's text. Never throws an Error: that is an outcome, too.
/// Throws BrokenPipe.
Outcome work_on(const Item& item, const Common& common, const Claim& claim, std::string room = {});

}  // namespace attn
