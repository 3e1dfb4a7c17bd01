#include "attn/draw/colour.h"

#include <algorithm>
#include <cmath>
#include <span>

namespace attn {
namespace {

constexpr Rgb kPaper[] = {{255, 255, 255}, {220, 235, 240}, {150, 200, 214}, {66, 150, 184},
                          {30, 98, 152},   {28, 52, 108},   {18, 18, 52}};
constexpr Rgb kNight[] = {{14, 16, 36},  {38, 40, 96},   {84, 52, 134},  {156, 66, 130},
                          {220, 98, 96}, {246, 164, 86}, {253, 244, 180}};
constexpr Rgb kDiverging[] = {{10, 48, 110},   {40, 110, 180}, {146, 190, 222}, {248, 248, 246},
                              {246, 190, 128}, {212, 112, 28}, {116, 48, 4}};

constexpr Rgb kDivergingNight[] = {{176, 224, 255}, {84, 166, 232}, {36, 92, 160},  {24, 24, 28},
                                   {150, 80, 20},   {232, 140, 52}, {255, 218, 160}};

// Entries of the 256-colour palette with increasing lightness and steady hue.
constexpr int kNight256[] = {17, 18, 54, 90, 126, 167, 209, 215, 222, 229};
constexpr int kDivergingNight256[] = {153, 75, 32, 25, 19, 17, 233, 52, 88, 130, 208, 215, 223};

std::span<const Rgb> anchors_of(ColourMap map) {
  switch (map) {
    case ColourMap::paper:
      return kPaper;
    case ColourMap::night:
      return kNight;
    case ColourMap::diverging_night:
      return kDivergingNight;
    case ColourMap::diverging:
      break;
  }
  return kDiverging;
}

double linear(std::uint8_t channel) {
  const double c = channel / 255.0;
  return c <= 0.04045 ? c / 12.92 : std::pow((c + 0.055) / 1.055, 2.4);
}

std::uint8_t encoded(double linear) {
  const double c = std::clamp(linear, 0.0, 1.0);
  const double s = c <= 0.0031308 ? 12.92 * c : 1.055 * std::pow(c, 1 / 2.4) - 0.055;
  return static_cast<std::uint8_t>(std::lround(255 * s));
}

struct Lab {
  double L, a, b;
};

Lab lab_of(Rgb colour) {
  const double r = linear(colour.red), g = linear(colour.green), b = linear(colour.blue);
  const double l = std::cbrt(0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b);
  const double m = std::cbrt(0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b);
  const double s = std::cbrt(0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b);
  return {0.2104542553 * l + 0.7936177850 * m - 0.0040720468 * s,
          1.9779984951 * l - 2.4285922050 * m + 0.4505937099 * s,
          0.0259040371 * l + 0.7827717662 * m - 0.8086757660 * s};
}

double cube(double x) { return x * x * x; }

Rgb rgb_of(Lab c) {
  const double l = cube(c.L + 0.3963377774 * c.a + 0.2158037573 * c.b);
  const double m = cube(c.L - 0.1055613458 * c.a - 0.0638541728 * c.b);
  const double s = cube(c.L - 0.0894841775 * c.a - 1.2914855480 * c.b);
  return {encoded(4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s),
          encoded(-1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s),
          encoded(-0.0041960863 * l - 0.7034186147 * m + 1.7076147010 * s)};
}

double luminance(Rgb colour) {
  return 0.2126 * linear(colour.red) + 0.7152 * linear(colour.green) + 0.0722 * linear(colour.blue);
}

}  // namespace

Rgb colour_at(ColourMap map, double position) {
  const std::span<const Rgb> anchors = anchors_of(map);
  const double last = static_cast<double>(anchors.size() - 1);
  const double at = std::clamp(position, 0.0, 1.0) * last;
  const auto below = static_cast<std::size_t>(std::min(at, last - 1));
  const double share = at - static_cast<double>(below);
  if (share == 0) return anchors[below];
  if (share == 1) return anchors[below + 1];
  const Lab low = lab_of(anchors[below]), high = lab_of(anchors[below + 1]);
  return rgb_of({std::lerp(low.L, high.L, share), std::lerp(low.a, high.a, share),
                 std::lerp(low.b, high.b, share)});
}

const Theme& theme(bool dark) {
  static constexpr Theme kLight{{255, 255, 255},  {30, 30, 34},        {96, 96, 104},
                                {150, 150, 156},  {196, 196, 200},     {192, 32, 128},
                                ColourMap::paper, ColourMap::diverging};
  static constexpr Theme kDark{
      {21, 22, 28}, {236, 236, 241}, {162, 162, 174},  {96, 97, 108},
      {85, 86, 95}, {64, 224, 160},  ColourMap::night, ColourMap::diverging_night};
  return dark ? kDark : kLight;
}

Rgb ink_on(Rgb background) {
  const double light = luminance(background);
  const bool dark_ink = (light + 0.05) / 0.05 > 1.05 / (light + 0.05);
  return dark_ink ? Rgb{0, 0, 0} : Rgb{255, 255, 255};
}

int palette_256(ColourMap map, double position) {
  const bool diverging = map == ColourMap::diverging || map == ColourMap::diverging_night;
  const std::span<const int> entries =
      diverging ? std::span<const int>(kDivergingNight256) : std::span<const int>(kNight256);
  const double at = std::clamp(position, 0.0, 1.0) * static_cast<double>(entries.size());
  return entries[std::min(static_cast<std::size_t>(at), entries.size() - 1)];
}

/// Entries 16 to 231 are a 6 x 6 x 6 cube, 232 to 255 a ramp of greys.
Rgb entry_of_256(int index) {
  const auto level = [](int step) { return static_cast<std::uint8_t>(step ? 55 + 40 * step : 0); };
  if (index >= 232) {
    const auto grey = static_cast<std::uint8_t>(8 + 10 * (index - 232));
    return {grey, grey, grey};
  }
  const int cell = index - 16;
  return {level(cell / 36), level(cell / 6 % 6), level(cell % 6)};
}

}  // namespace attn
