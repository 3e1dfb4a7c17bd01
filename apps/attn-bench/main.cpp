// attn-bench [--quick] [--json] [--threads N] [TEXT]...: measures kernels relative to the peak
// rate. Each repetition measures the machine's peak rate and then the kernel; a row prints medians
// and the range of their ratio. Decoding is limited by memory bandwidth, so its peak is the rate of
// reading the same keys and values. TEXT: only workloads whose group or name contains it. ATTN_ISA
// selects a lower instruction set.
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>

#include "attn/base/error.h"
#include "attn/base/text.h"
#include "backward.h"
#include "measure.h"
#include "reference.h"
#include "workload.h"

namespace attn::bench {
namespace {

struct Arguments {
  bool quick = false, json = false;
  std::size_t threads = kernel::available_cpus();
  std::vector<std::string> only;
};

Arguments read_arguments(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string text = argv[i];
    if (text == "--quick") {
      arguments.quick = true;
    } else if (text == "--json") {
      arguments.json = true;
    } else if (text == "--threads" && i + 1 < argc) {
      const char* end = argv[i + 1] + std::strlen(argv[i + 1]);
      const auto parsed = std::from_chars(argv[++i], end, arguments.threads);
      if (parsed.ptr != end || arguments.threads == 0 || arguments.threads > 4096)
        fail_usage("--threads: expected 1 to 4096, found '" + printable(argv[i]) + "'");
    } else if (text.starts_with("-")) {
      fail_usage("expected [--quick] [--json] [--threads N] [TEXT]..., found '" + printable(text) +
                 "'");
    } else {
      arguments.only.push_back(text);
    }
  }
  return arguments;
}

bool wanted(const Arguments& arguments, const Shape& shape) {
  const std::string name = std::string(shape.group) + " " + name_of(shape);
  return arguments.only.empty() ||
         std::any_of(arguments.only.begin(), arguments.only.end(),
                     [&](const std::string& text) { return name.find(text) != std::string::npos; });
}

struct Measured {
  Summary seconds, rate, peak;     ///< rates: flops (decoding: bytes) per second
  Summary fraction, cpu_fraction;  ///< of the peak, by elapsed and by processor time
  double blas_seconds = 0;         ///< 0: not measured
};

template <class T>
double measure_blas(const Workload<T>& workload, const Shape& shape, std::size_t threads) {
  std::vector<T> context(shape.H * shape.L * shape.D);
  const auto blas = [&] { blas_attention(workload.problem(), context.data(), threads); };
  blas();
  return std::min(seconds_of(blas).wall, seconds_of(blas).wall);
}

/// Measures calls of attend(), which takes `amount` flops, or bytes when decoding.
/// measure_limit(n) measures the machine's peak, or reads the same bytes n times.
template <class F>
Measured measure_calls(const std::function<void()>& attend, double amount, F measure_limit,
                       const Arguments& arguments) {
  attend();  // starts threads and faults in memory
  const double once = seconds_of(attend).wall, budget = arguments.quick ? 0.3 : 2;
  const int repetitions = std::clamp(static_cast<int>(budget / (once + 0.01)), 5, 41);
  // Short calls, and the reads they are compared with, are repeated and measured together.
  const int calls = std::clamp(static_cast<int>(0.004 / once), 1, 100);
  std::vector<double> seconds, rates, peaks, fractions, cpu_fractions;
  for (int i = 0; i < repetitions; ++i) {
    const Measurement peak = measure_limit(calls);
    for (int call = 0; calls > 1 && call < calls; ++call)
      attend();  // loads its data into the caches
    const Measurement kernel{amount * calls, seconds_of([&] {
                               for (int call = 0; call < calls; ++call) attend();
                             })};
    seconds.push_back(kernel.seconds.wall / calls);
    rates.push_back(kernel.rate());
    peaks.push_back(peak.rate());
    fractions.push_back(kernel.rate() / peak.rate());
    cpu_fractions.push_back(kernel.cpu_rate() / peak.cpu_rate());
  }
  return {summarize(seconds), summarize(rates), summarize(peaks), summarize(fractions),
          summarize(cpu_fractions)};
}

template <class T>
Measured measure(const Shape& shape, const Arguments& arguments, kernel::ThreadPool& pool) {
  const auto multiply = [&](int) { return measure_peak<T>(pool); };
  if (shape.backward) {
    const BackwardWorkload<T> workload(shape, pool);
    return measure_calls([&] { workload.run(pool); }, workload.flops(), multiply, arguments);
  }
  const Workload<T> workload(shape);
  const auto attend = [&] { kernel::attend(workload.problem(), workload.results(), pool); };
  if (shape.L == 1) {
    const auto arrays = workload.keys_and_values();
    return measure_calls(
        attend, static_cast<double>(arrays[0].size_bytes() + arrays[1].size_bytes()),
        [&](int times) { return measure_reading(pool, arrays, times); }, arguments);
  }
  Measured measured = measure_calls(attend, workload.flops(), multiply, arguments);
  if (shape.beside_blas) measured.blas_seconds = measure_blas(workload, shape, pool.threads());
  return measured;
}

void print_text(const Shape& shape, const Measured& m) {
  static std::string group;
  if (group != shape.group)
    std::printf("\n%-34s %9s %8s %8s   %-21s %-21s %8s\n", (group = shape.group).c_str(), "ms",
                "G/s", "peak", "of peak (spread)", "by processor time", "vs BLAS");
  std::printf("%-34s %9.3f %8.1f %8.1f   %.3f (%.3f..%.3f)  %.3f (%.3f..%.3f)",
              name_of(shape).c_str(), m.seconds.median * 1e3, m.rate.median / 1e9,
              m.peak.median / 1e9, m.fraction.median, m.fraction.min, m.fraction.max,
              m.cpu_fraction.median, m.cpu_fraction.min, m.cpu_fraction.max);
  if (m.blas_seconds > 0) std::printf(" %7.2fx", m.blas_seconds / m.seconds.median);
  std::printf("\n");
  std::fflush(stdout);
}

void print_json(const Shape& s, const Measured& m, bool first) {
  std::printf(
      "%s\n    {\"group\": \"%s\", \"name\": \"%s\", \"dtype\": \"%s\", \"extra\": \"%s\",\n",
      first ? "" : ",", s.group, name_of(s).c_str(), s.f64 ? "f64" : "f32",
      std::string(name_of(s.extra)).c_str());
  std::printf("     \"H\": %zu, \"G\": %zu, \"L\": %zu, \"S\": %zu, \"D\": %zu,\n", s.H, s.G, s.L,
              s.S, s.D);
  std::printf("     \"unit\": \"%s\", \"seconds\": %.9g, \"rate\": %.9g, \"peak\": %.9g,\n",
              s.L == 1 ? "bytes" : "flops", m.seconds.median, m.rate.median, m.peak.median);
  std::printf("     \"fraction\": %.4f, \"fraction_least\": %.4f, \"fraction_most\": %.4f,\n",
              m.fraction.median, m.fraction.min, m.fraction.max);
  std::printf(
      "     \"cpu_fraction\": %.4f, \"cpu_fraction_least\": %.4f, \"cpu_fraction_most\": %.4f",
      m.cpu_fraction.median, m.cpu_fraction.min, m.cpu_fraction.max);
  if (m.blas_seconds > 0) std::printf(", \"blas_seconds\": %.9g", m.blas_seconds);
  std::printf("}");
  std::fflush(stdout);
}

void run(const Arguments& arguments) {
  kernel::ThreadPool pool(arguments.threads);
  const std::string isa(kernel::isa());
  if (arguments.json)
    std::printf(
        "{\n  \"schema\": \"attn-bench/1\", \"isa\": \"%s\", \"threads\": %zu,\n  \"rows\": [",
        isa.c_str(), pool.threads());
  else
    std::printf(
        "%s, %zu thread%s; G/s: flops, or bytes when decoding, in units of 1e9 per second\n",
        isa.c_str(), pool.threads(), pool.threads() == 1 ? "" : "s");
  bool first = true;
  for (const Shape& shape : shapes(arguments.quick)) {
    if (!wanted(arguments, shape)) continue;
    const Measured measured = shape.f64 ? measure<double>(shape, arguments, pool)
                                        : measure<float>(shape, arguments, pool);
    arguments.json ? print_json(shape, measured, first) : print_text(shape, measured);
    first = false;
  }
  if (arguments.json) std::printf("\n  ]\n}\n");
}

}  // namespace
}  // namespace attn::bench

int main(int argc, char** argv) {
  try {
    attn::bench::run(attn::bench::read_arguments(argc, argv));
    return 0;
  } catch (const attn::Error& error) {
    for (const std::string& line : error.lines())
      std::fprintf(stderr, "attn-bench: %s\n", line.c_str());
    return static_cast<int>(error.kind());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "attn-bench: %s\n", error.what());
    return static_cast<int>(attn::ErrorKind::internal);
  }
}
