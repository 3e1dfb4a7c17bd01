// A team (attn-mpi/team.h) whose members are threads.
#pragma once

#include <cstddef>
#include <functional>

#include "attn-mpi/team.h"

/// Calls work() once for each of `members`, in threads. Throws what the first of them throws.
void run_team(std::size_t members, const std::function<void(attn::Team&)>& work);
