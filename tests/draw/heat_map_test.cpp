#include "attn/draw/heat_map.h"

#include <catch2/catch.hpp>
#include <cmath>

using namespace attn;

TEST_CASE("numbers in cells are short", "[heat_map]") {
  const std::pair<double, const char*> cases[] = {
      {0, "0"},          {1, "1"},          {0.25, "0.25"},    {0.4567, "0.46"},
      {0.0456, "0.046"}, {0.0074, "0.007"}, {0.00052, "5e-4"}, {0.00096, "0.001"},
      {-12.34, "-12.3"}, {1e-12, "1e-12"},  {123456, "1e5"},   {INFINITY, "inf"}};
  for (const auto& [value, text] : cases) CHECK(short_number(value) == text);
}

TEST_CASE("a signed scale keeps 0 in the middle", "[heat_map]") {
  HeatScale scale{-1, 3, Curve::linear, true};
  CHECK(scale.position(0) == 0.5);
  CHECK(scale.position(3) == 1);
  CHECK(scale.position(-1.5) == 0.25);
  CHECK(scale.position(-9) == 0);
}

TEST_CASE("a logarithmic scale spreads small numbers", "[heat_map]") {
  HeatScale scale{1e-4, 1, Curve::logarithmic, false};
  CHECK(scale.position(1e-2) == Approx(0.5));
  CHECK(scale.position(0) == 0);
  CHECK(scale.position(2) == 1);
}

TEST_CASE("a block is drawn as its strongest cell and hidden only when all of it is",
          "[heat_map]") {
  HeatSource source;
  source.tensor = Tensor::of<double>({3, 4}, {1, -5, 0, 2,  //
                                              3, 4, 0, 0,   //
                                              6, 7, 8, NAN});
  const double hidden = -INFINITY;
  source.masked = Tensor::of<double>({3, 4}, {0, 0, hidden, hidden,  //
                                              0, 0, hidden, hidden,  //
                                              0, 0, 0, 0});
  source.name = "scores";
  const HeatMap map = reduced(make_heat_map(source, {}), 2, 2);
  REQUIRE(map.rows() == 2);
  REQUIRE(map.columns() == 2);
  CHECK(map.row(map.panels[0], 0).values[0] == -5);
  CHECK(map.row(map.panels[0], 0).kinds[1] == CellKind::hidden);
  CHECK(map.row(map.panels[0], 1).values[0] == 7);
  CHECK(map.row(map.panels[0], 1).kinds[1] == CellKind::nan);
  CHECK(map.row_labels == std::vector<std::string>{"0", "2"});
  CHECK(map.notes == std::vector<std::string>{
                         "each cell shows the value of largest magnitude of a block of 2 x 2"});
}
