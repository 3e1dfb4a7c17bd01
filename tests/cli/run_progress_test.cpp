#include "attn/cli/run_progress.h"

#include <catch2/catch.hpp>

using namespace attn;

TEST_CASE("progress is shown as a percentage with the time that is left") {
  CHECK(progress_text(0, 200, 3.4) == "0 % done after 3 s");
  CHECK(progress_text(50, 200, 10) == "25 % done, 30 s left");
  CHECK(progress_text(200, 200, 10) == "100 % done after 10 s");
  CHECK(progress_text(0, 0, 1) == "running for 1 s");
}
